package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NodeSelectorErrors checks a node selector, which must have terms.
func NodeSelectorErrors(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	at := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, nodeTermValidate(&s.NodeSelectorTerms[i], at.Index(i))...)
	}
	return errs
}

// LimitErrors checks limits without requests.
func LimitErrors(limits corev1.ResourceList, path *field.Path) field.ErrorList {
	return resourcesValidate(&corev1.ResourceRequirements{Limits: limits}, nil, path)
}
