package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// DefaultTemplate sets the defaults of a pod template. As upstream, the creation of the pods sets some of the defaults.
func DefaultTemplate(template *corev1.PodTemplateSpec) { podSpecDefault(&template.Spec) }

// TemplateColumns returns the columns of a pod template, which -o wide shows.
func TemplateColumns[T store.Object](of func(T) *corev1.PodTemplateSpec) []table.Column {
	column := func(name, description string, cell func(*corev1.Container) string) table.Column {
		return table.Text(name, description, func(obj T) string {
			var all []string
			if template := of(obj); template != nil {
				for i := range template.Spec.Containers {
					all = append(all, cell(&template.Spec.Containers[i]))
				}
			}
			return strings.Join(all, ",")
		}).Wide()
	}
	return []table.Column{
		column("Containers", "Names of the template's containers.", func(c *corev1.Container) string { return c.Name }),
		column("Images", "Images of the template's containers.", func(c *corev1.Container) string { return c.Image }),
	}
}

// OwnerColumns returns the columns of a controller of pods: columns, and for -o wide those of its template and
// selector.
func OwnerColumns[T store.Object](columns []table.Column, template func(T) *corev1.PodTemplateSpec,
	selector func(T) string) []table.Column {
	return append(append(columns, TemplateColumns(template)...),
		table.Text("Selector", "Selector of the pods.", selector).Wide())
}
