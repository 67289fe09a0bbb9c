package deployment

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/controllers/owned"
)

// onReplicaSet updates the index, and wakes the Deployments that own the ReplicaSet, owned it, or may adopt it. It
// may be called again after an error.
func (r *run) onReplicaSet(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	r.sets.Change(old, new)
	return owned.Changed(ctx, r.deps.Client, kind, func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }, old, new)
}
