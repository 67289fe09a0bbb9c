package replicaset

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// claims returns how owners of the kind claim pods.
func (k kind) claims(c client.Client) owned.Claims[*corev1.Pod] {
	return owned.Claims[*corev1.Pod]{Client: c, Kind: k.gvk, Adoptive: podstate.Active}
}

// claim adopts and releases pods where necessary, and returns those of rs, terminating ones included and finished
// ones not.
func (r *run) claim(ctx context.Context, rs set, selector labels.Selector, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	return r.claims.Of(ctx, rs.stored, selector, slices.DeleteFunc(pods, podstate.Finished))
}

// claimStored is claim over the pods that the API has. The index may lack pods that are older than rs, since watches
// of different kinds are not ordered. No pod is created or deleted before this check.
func (r *run) claimStored(ctx context.Context, rs set, selector labels.Selector) ([]*corev1.Pod, error) {
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: rs.Namespace, Labels: selector})
	if err != nil {
		return nil, err
	}
	return r.claim(ctx, rs, selector, pods)
}

// split divides a ReplicaSet's pods into active and terminating ones.
func split(pods []*corev1.Pod) (active, terminating []*corev1.Pod) {
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			terminating = append(terminating, p)
		} else {
			active = append(active, p)
		}
	}
	return active, terminating
}
