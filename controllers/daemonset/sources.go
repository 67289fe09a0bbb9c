package daemonset

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

func selectorOf(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector }

// onNode wakes the DaemonSets for which the node starts or stops being eligible. Heartbeats wake none.
func (r *run) onNode(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	was, _ := old.(*corev1.Node)
	is, _ := new.(*corev1.Node)
	if was != nil && is != nil && maps.Equal(was.Labels, is.Labels) &&
		equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) {
		return nil, nil
	}
	all, err := client.List[*appsv1.DaemonSet](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return nil, err
	}
	var keys []follow.Key
	for _, ds := range all {
		ran, stayed := was != nil, was != nil
		if was != nil {
			ran, stayed = fits(ds, was)
		}
		run, stay := is != nil, is != nil
		if is != nil {
			run, stay = fits(ds, is)
		}
		if run != ran || stay != stayed {
			keys = append(keys, follow.KeyOf(ds))
		}
	}
	return keys, nil
}
