package workload

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/registry/kind"
)

// scales returns the subresource scale. of returns an object's desired replicas (nil: one), its existing replicas and
// its selector.
func scales(of func(obj kind.Object) (wanted **int32, there int32, selector string)) *kind.Scale {
	return &kind.Scale{
		Of: func(obj kind.Object) *autoscalingv1.Scale {
			wanted, there, selector := of(obj)
			return &autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
				ObjectMeta: metav1.ObjectMeta{
					Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
					ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
				},
				Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(*wanted, 1)},
				Status: autoscalingv1.ScaleStatus{Replicas: there, Selector: selector},
			}
		},
		Set: func(obj kind.Object, scale *autoscalingv1.Scale) {
			wanted, _, _ := of(obj)
			*wanted = new(scale.Spec.Replicas)
		},
	}
}

// selectorText returns the selector as Scale shows it; empty for an invalid one, which validation rejects.
func selectorText(selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return ""
	}
	return s.String()
}
