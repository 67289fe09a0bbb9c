package statefulset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

func selectorOf(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector }

// onClaim wakes the StatefulSets that may wait for the deletion of a claim to create it again.
func (r *run) onClaim(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	if new != nil {
		return nil, nil
	}
	return owned.Candidates(ctx, r.deps.Client, old, selectorOf)
}
