package disruption

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
)

// demand returns what the budget requires for the given pods.
func (c *Controller) demand(ctx context.Context, b *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (demand, error) {
	if !byScale(&b.Spec) {
		return demandOf(&b.Spec, int32(len(pods)))
	}
	scales := map[types.UID]int32{} // by the pods' controllers
	counted := map[types.UID]bool{} // owners of pods, whose scale is known
	unmanaged := 0
	for _, p := range pods {
		owner := metav1.GetControllerOfNoCopy(p)
		if owner == nil {
			unmanaged++
			continue
		}
		if counted[owner.UID] {
			continue
		}
		uid, replicas, err := c.scale(ctx, p.Namespace, owner)
		if err != nil {
			return demand{}, err
		}
		if uid == "" {
			return demand{}, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		scales[uid], counted[owner.UID] = replicas, true
	}
	var expected int32
	for _, replicas := range scales {
		expected += replicas
	}
	d, err := demandOf(&b.Spec, expected)
	d.unmanaged = unmanaged
	return d, err
}

// scale returns the UID of the pods' controller and its desired number of pods. For a ReplicaSet of a Deployment it
// returns those of the Deployment. The UID is empty if the controller no longer exists.
func (c *Controller) scale(ctx context.Context, namespace string,
	owner *metav1.OwnerReference) (uid types.UID, replicas int32, err error) {
	if owner.Kind == "ReplicaSet" && owner.APIVersion == appsv1.SchemeGroupVersion.String() {
		rs, err := client.Get[*appsv1.ReplicaSet](ctx, c.deps.Client, namespace, owner.Name)
		if err == nil && rs.UID == owner.UID {
			if above := metav1.GetControllerOfNoCopy(rs); above != nil && above.Kind == "Deployment" {
				return c.scale(ctx, namespace, above)
			}
		}
	}
	kind, err := c.kinds.Named(owner.APIVersion, owner.Kind)
	if err != nil {
		return "", 0, err
	}
	if !kind.Scale {
		return "", 0, fmt.Errorf("%s %s does not implement the scale subresource", owner.APIVersion, owner.Kind)
	}
	obj, err := c.deps.Client.Get(ctx,
		client.Ref{Resource: kind.Resource, Namespace: namespace, Name: owner.Name, Subresource: "scale"})
	if apierrors.IsNotFound(err) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return "", 0, fmt.Errorf("the scale of %s %s is a %T", owner.Kind, owner.Name, obj)
	}
	if scale.UID != owner.UID {
		return "", 0, nil
	}
	return owner.UID, scale.Spec.Replicas, nil
}
