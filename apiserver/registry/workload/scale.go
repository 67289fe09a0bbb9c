package workload

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry/kind"
)

// scales makes the subresource scale out of where an object keeps how many pods
// are wanted (nil: one), how many there are, and which they are.
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
				Spec:   autoscalingv1.ScaleSpec{Replicas: orOne(*wanted)},
				Status: autoscalingv1.ScaleStatus{Replicas: there, Selector: selector},
			}
		},
		Set: func(obj kind.Object, scale *autoscalingv1.Scale) {
			wanted, _, _ := of(obj)
			*wanted = new(scale.Spec.Replicas)
		},
	}
}

// selectorText is the selector as scale tells it; Validate lets none in that
// can not be told.
func selectorText(selector *metav1.LabelSelector) string {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return ""
	}
	return s.String()
}

// orOne is the number of pods wanted, one if nobody said.
func orOne(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}
