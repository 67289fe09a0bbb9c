package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/table"
	"monopod/store"
)

// DefaultTemplate fills in what the template of a controller's pods leaves out:
// less than a pod gets, which is what upstream leaves to the pods' creation.
func DefaultTemplate(template *corev1.PodTemplateSpec) { podSpecDefault(&template.Spec) }

// ValidateTemplate checks the pods a controller would make.
func ValidateTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, annotationErrors(template.Annotations, &template.Spec, path.Child("annotations"))...)
	errs = append(errs, podSpecValidate(&template.Spec, path.Child("spec"))...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}

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
