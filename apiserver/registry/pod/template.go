package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// DefaultTemplate fills in what the template of a controller's pods leaves out:
// less than a pod gets, which is what upstream leaves to the pods' creation.
func DefaultTemplate(template *corev1.PodTemplateSpec) { podSpecDefault(&template.Spec) }

// TemplateColumns are what -o wide shows of a controller's template.
func TemplateColumns[T store.Object](of func(T) *corev1.PodTemplateSpec) []table.Column {
	column := func(name, description string, cell func(*corev1.Container) string) table.Column {
		return table.Text(name, description, func(obj T) string {
			return joinContainers(of(obj), cell)
		}).Wide()
	}
	return []table.Column{
		column("Containers", "Names of the template's containers.", func(c *corev1.Container) string { return c.Name }),
		column("Images", "Images of the template's containers.", func(c *corev1.Container) string { return c.Image }),
	}
}

// OwnerColumns are those of a controller of pods: its own, then what -o wide shows
// of its template and of its selector.
func OwnerColumns[T store.Object](own []table.Column, template func(T) *corev1.PodTemplateSpec, selector func(T) string) []table.Column {
	return append(append(own, TemplateColumns(template)...), table.Text("Selector", "Which pods belong to it.", selector).Wide())
}

func joinContainers(template *corev1.PodTemplateSpec, cell func(*corev1.Container) string) string {
	if template == nil {
		return ""
	}
	var all []string
	for i := range template.Spec.Containers {
		all = append(all, cell(&template.Spec.Containers[i]))
	}
	return strings.Join(all, ",")
}
