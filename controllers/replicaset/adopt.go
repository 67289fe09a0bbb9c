package replicaset

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// adopter adopts pods for owners of the kind.
func (k kind) adopter(c client.Client) owned.Adopter[*corev1.Pod] {
	return owned.Adopter[*corev1.Pod]{Client: c, Kind: k.gvk, Adoptive: podstate.Active}
}

// adopt adopts and releases pods where necessary. It returns the pods of rs, including terminating and excluding
// finished ones.
func (r *run) adopt(ctx context.Context, rs set, selector labels.Selector, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	return r.adopter.Of(ctx, rs.stored, selector, slices.DeleteFunc(pods, podstate.Finished))
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
