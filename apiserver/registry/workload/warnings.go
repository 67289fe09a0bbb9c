package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// podsWarnings are those of a controller that names its pods after itself: of
// its name when it is new, of its template whenever its spec is.
func podsWarnings(next, cur kind.Object, template *corev1.PodTemplateSpec) []string {
	warnings := templateWarnings(next, cur, template)
	if cur == nil {
		warnings = append(check.NameWarnings(next.GetName()), warnings...)
	}
	return warnings
}

// templateWarnings are those of the template, unless the spec stayed as it was.
func templateWarnings(next, cur kind.Object, template *corev1.PodTemplateSpec) []string {
	if cur != nil && next.GetGeneration() == cur.GetGeneration() {
		return nil
	}
	return pod.Warnings(field.NewPath("spec", "template"), &template.ObjectMeta, &template.Spec)
}
