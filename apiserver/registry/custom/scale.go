package custom

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/kind"
)

// checkScale returns the errors of the fields that the subresource scale maps.
func (v *Version) checkScale(all map[string]any, spec bool) (errs field.ErrorList) {
	scale := v.scale()
	if scale == nil {
		return nil
	}
	if spec {
		errs = append(errs, checkReplicas(all, scale.SpecReplicasPath)...)
	}
	errs = append(errs, checkReplicas(all, scale.StatusReplicasPath)...)
	if at := scale.LabelSelectorPath; at != nil {
		if selector, _, err := unstructured.NestedString(all, pathOf(*at)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*at), selector, err.Error()))
		}
	}
	return errs
}

func checkReplicas(all map[string]any, at string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(all, pathOf(at)...)
	switch path := field.NewPath(at); {
	case err != nil:
		return field.ErrorList{field.Invalid(path, n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(path, n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}

// pathOf returns the fields of a simple JSONPath such as .spec.replicas.
func pathOf(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }

// scaleOf returns the subresource scale.
func scaleOf(paths *apiextensionsv1.CustomResourceSubresourceScale) *kind.Scale {
	return &kind.Scale{
		Of: func(obj kind.Object) *autoscalingv1.Scale {
			o := obj.(*Object)
			scale := &autoscalingv1.Scale{
				TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: autoscalingv1.SchemeGroupVersion.String()},
				ObjectMeta: metav1.ObjectMeta{
					Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion,
					CreationTimestamp: o.CreationTimestamp},
			}
			all, err := o.Content()
			if err != nil {
				return scale // stored objects are valid JSON
			}
			spec, _, _ := unstructured.NestedInt64(all, pathOf(paths.SpecReplicasPath)...)
			status, _, _ := unstructured.NestedInt64(all, pathOf(paths.StatusReplicasPath)...)
			scale.Spec.Replicas, scale.Status.Replicas = int32(spec), int32(status)
			if paths.LabelSelectorPath != nil {
				scale.Status.Selector, _, _ = unstructured.NestedString(all, pathOf(*paths.LabelSelectorPath)...)
			}
			return scale
		},
		Set: func(obj kind.Object, scale *autoscalingv1.Scale) { // in the member that contains the path of the replicas
			o, path, within := obj.(*Object), pathOf(paths.SpecReplicasPath), map[string]any{}
			if text := o.member(path[0]); text != nil {
				value, err := decoded(text)
				if err != nil {
					return
				}
				within[path[0]] = value
			}
			if unstructured.SetNestedField(within, int64(scale.Spec.Replicas), path...) != nil {
				return // the member is not an object: validation reports it
			}
			if text, err := json.Marshal(within[path[0]]); err == nil {
				o.replace(path[0], text)
			}
		},
	}
}
