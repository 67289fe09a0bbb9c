package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// podsWarnings returns the warnings about the name of a new controller, which becomes part of its pods' names, and
// those of templateWarnings.
func podsWarnings(next, cur kind.Object, template *corev1.PodTemplateSpec) []string {
	warnings := templateWarnings(next, cur, template)
	if cur == nil {
		warnings = append(check.NameWarnings(next.GetName()), warnings...)
	}
	return warnings
}

// templateWarnings returns the warnings about the template of a new object or a changed spec.
func templateWarnings(next, cur kind.Object, template *corev1.PodTemplateSpec) []string {
	if cur != nil && next.GetGeneration() == cur.GetGeneration() {
		return nil
	}
	return pod.Warnings(field.NewPath("spec", "template"), &template.ObjectMeta, &template.Spec)
}
