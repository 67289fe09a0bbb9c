package statefulset

import (
	"context"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/controllers/owned"
)

func selectorOf(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

// onSet wakes the StatefulSet, and forgets failures from before its change.
func (r *run) onSet(old, new client.Object) []follow.Key {
	if new == nil {
		r.failures.Forget(old.GetUID(), math.MaxInt64)
	} else {
		r.failures.Forget(new.GetUID(), new.GetGeneration())
	}
	return follow.OnAny(old, new)
}

// onClaim wakes the StatefulSets that may wait for the deletion of a claim to create it again.
func (r *run) onClaim(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	if new != nil {
		return nil, nil
	}
	return owned.Candidates(ctx, r.deps.Client, old, selectorOf)
}
