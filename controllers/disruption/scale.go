package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/client"
)

// demand returns what the budget requires for these pods.
func (c *Controller) demand(ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (demand, error) {
	if !byScale(&b.Spec) {
		return ask(&b.Spec, int32(len(pods)))
	}
	scales := map[types.UID]int32{} // by the pods' controllers
	unmanaged := 0
	for _, p := range pods {
		owner := metav1.GetControllerOfNoCopy(p)
		if owner == nil {
			unmanaged++
			continue
		}
		uid, replicas, err := c.scale(ctx, p.Namespace, owner)
		if err != nil {
			return demand{}, err
		}
		if uid == "" {
			return demand{}, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		scales[uid] = replicas
	}
	var expected int32
	for _, replicas := range scales {
		expected += replicas
	}
	d, err := ask(&b.Spec, expected)
	d.unmanaged = unmanaged
	return d, err
}

// scale returns the desired number of pods of the controller of an owner: for a ReplicaSet of a Deployment the
// Deployment's. An empty uid: it does not exist any more.
func (c *Controller) scale(ctx context.Context, namespace string, owner *metav1.OwnerReference) (uid types.UID, replicas int32, err error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return "", 0, err
	}
	switch gv.Group + "/" + owner.Kind {
	case "apps/ReplicaSet":
		rs, err := client.Get[*appsv1.ReplicaSet](ctx, c.deps.Client, namespace, owner.Name)
		if err == nil && rs.UID == owner.UID {
			if above := metav1.GetControllerOfNoCopy(rs); above != nil && above.Kind == "Deployment" {
				return c.scale(ctx, namespace, above)
			}
		}
		return found(rs, err, owner, func() *int32 { return rs.Spec.Replicas })
	case "apps/Deployment":
		d, err := client.Get[*appsv1.Deployment](ctx, c.deps.Client, namespace, owner.Name)
		return found(d, err, owner, func() *int32 { return d.Spec.Replicas })
	case "apps/StatefulSet":
		s, err := client.Get[*appsv1.StatefulSet](ctx, c.deps.Client, namespace, owner.Name)
		return found(s, err, owner, func() *int32 { return s.Spec.Replicas })
	case "/ReplicationController":
		rc, err := client.Get[*corev1.ReplicationController](ctx, c.deps.Client, namespace, owner.Name)
		return found(rc, err, owner, func() *int32 { return rc.Spec.Replicas })
	}
	return "", 0, fmt.Errorf("%s %s does not implement the scale subresource", owner.APIVersion, owner.Kind)
}

// found returns the result of a get, if it is the owner with the UID.
func found(obj client.Object, err error, owner *metav1.OwnerReference, replicas func() *int32) (types.UID, int32, error) {
	switch {
	case apierrors.IsNotFound(err):
		return "", 0, nil
	case err != nil:
		return "", 0, err
	case obj.GetUID() != owner.UID:
		return "", 0, nil
	}
	if n := replicas(); n != nil {
		return owner.UID, *n, nil
	}
	return owner.UID, 1, nil
}
