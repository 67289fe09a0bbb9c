package pod

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/kind"
)

func podValidate(next, cur kind.Object, subresource string) field.ErrorList {
	pod, spec := next.(*corev1.Pod), field.NewPath("spec")
	if cur == nil {
		errs := append(podAnnotations(pod), Validate(&pod.Spec, spec)...)
		if len(pod.Spec.EphemeralContainers) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
		}
		if len(pod.Spec.SchedulingGates) > 0 && pod.Spec.NodeName != "" {
			errs = append(errs,
				field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
		}
		return errs
	}
	old := cur.(*corev1.Pod)
	if subresource == "status" {
		return append(podStatusUpdate(pod, old, field.NewPath("status")), mirrorUpdate(pod.Annotations, old.Annotations)...)
	}
	errs := append(podAnnotations(pod), mirrorUpdate(pod.Annotations, old.Annotations)...)
	errs = append(errs, Validate(&pod.Spec, spec)...)
	return append(errs, podSpecUpdate(&pod.Spec, &old.Spec, spec)...)
}

func podAnnotations(pod *corev1.Pod) field.ErrorList {
	return AnnotationErrors(pod.Annotations, &pod.Spec, field.NewPath("metadata", "annotations"))
}

// ValidateTemplate returns the errors of a pod template.
func ValidateTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, AnnotationErrors(template.Annotations, &template.Spec, path.Child("annotations"))...)
	errs = append(errs, Validate(&template.Spec, path.Child("spec"))...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs,
			field.Forbidden(path.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	return errs
}
