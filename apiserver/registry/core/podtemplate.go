package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func podTemplateResource() kind.Resource {
	return kind.Resource{
		GVR:        client.PodTemplates,
		Kind:       "PodTemplate",
		Namespaced: true,
		New:        func() kind.Object { return new(corev1.PodTemplate) },
		Default:    podTemplateDefault,
		Prepare:    kind.SpecOnly(podTemplateOf, podTemplateDefault),
		Validate: func(next, _ kind.Object, _ string) field.ErrorList {
			return pod.ValidateTemplate(podTemplateOf(next), field.NewPath("template"))
		},
		Warnings: func(next, _ kind.Object) []string {
			template := podTemplateOf(next)
			return pod.Warnings(field.NewPath("template"), &template.ObjectMeta, &template.Spec)
		},
		ReturnDeleted: true,
		Columns:       podTemplateColumns(),
	}
}

func podTemplateDefault(obj kind.Object) { pod.DefaultTemplate(podTemplateOf(obj)) }

func podTemplateOf(obj kind.Object) *corev1.PodTemplateSpec {
	return &obj.(*corev1.PodTemplate).Template
}

// podTemplateColumns returns columns that are always shown; for controllers they need -o wide.
func podTemplateColumns() []table.Column {
	columns := []table.Column{table.Name()}
	for _, c := range pod.TemplateColumns(func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }) {
		c.Priority = 0
		columns = append(columns, c)
	}
	return append(columns, table.Text("Pod Labels", "Labels of the template's pods.", func(t *corev1.PodTemplate) string {
		return labels.FormatLabels(t.Template.Labels)
	}))
}
