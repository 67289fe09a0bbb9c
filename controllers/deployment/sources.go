package deployment

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/controllers/owned"
)

// onReplicaSet keeps the index, and wakes the Deployments that own the ReplicaSet,
// owned it, or may adopt it. It may be called again after an error.
func (r *run) onReplicaSet(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	r.sets.Change(old, new)
	var before, after *metav1.OwnerReference
	if old != nil {
		before = metav1.GetControllerOfNoCopy(old)
	}
	if new != nil {
		after = metav1.GetControllerOfNoCopy(new)
	}
	var keys []follow.Key
	if before != nil && (after == nil || after.UID != before.UID) {
		var err error
		if keys, err = r.owner(ctx, old, before); err != nil {
			return nil, err
		}
	}
	var more []follow.Key
	var err error
	switch {
	case after != nil:
		more, err = r.owner(ctx, new, after)
	case new != nil && (old == nil || before != nil || !maps.Equal(old.GetLabels(), new.GetLabels())):
		more, err = owned.Candidates(ctx, r.deps.Client, new, func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
	}
	return append(keys, more...), err
}

// owner is the Deployment that a reference of a ReplicaSet names.
func (r *run) owner(ctx context.Context, rs client.Object, ref *metav1.OwnerReference) ([]follow.Key, error) {
	return owned.Owner[*appsv1.Deployment](ctx, r.deps.Client, kind, rs.GetNamespace(), ref)
}
