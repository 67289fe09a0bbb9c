package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// ephemeralUpdate returns the errors of an update, which may only add ephemeral containers.
func ephemeralUpdate(pod, old *corev1.Pod, spec *field.Path) field.ErrorList {
	path := spec.Child("ephemeralContainers")
	errs := Validate(&pod.Spec, spec)
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		at := slices.IndexFunc(pod.Spec.EphemeralContainers,
			func(c corev1.EphemeralContainer) bool { return c.Name == was.Name })
		if at < 0 {
			errs = append(errs,
				field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
			continue
		}
		if is := &pod.Spec.EphemeralContainers[at]; !equality.Semantic.DeepEqual(is, was) {
			changed := check.ChangedFields(is.EphemeralContainerCommon, was.EphemeralContainerCommon,
				equality.Semantic.DeepEqual)
			errs = append(errs, field.Forbidden(path,
				fmt.Sprintf("existing ephemeral containers %q may not be changed\nchanged: %v", was.Name, changed)))
		}
	}
	return errs
}
