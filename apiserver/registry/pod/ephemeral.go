package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
	"monopod/apiserver/registry/pod/podspec"
)

// podPartPrepare makes pod what it was before, but for the part that take carries
// over from what the client sent.
func podPartPrepare(pod, old *corev1.Pod, take func(next, sent *corev1.PodSpec)) {
	sent := pod.Spec
	old.DeepCopyInto(pod)
	take(&pod.Spec, &sent)
	podDefault(pod)
	if !equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		pod.Generation = old.Generation + 1
	}
}

func takeEphemeral(next, sent *corev1.PodSpec) { next.EphemeralContainers = sent.EphemeralContainers }

// ephemeralUpdate lets ephemeral containers be added; those that are there stay.
func ephemeralUpdate(pod, old *corev1.Pod, spec *field.Path) field.ErrorList {
	path := spec.Child("ephemeralContainers")
	errs := podspec.Validate(&pod.Spec, spec)
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		errs = append(errs, field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		at := slices.IndexFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == was.Name })
		if at < 0 {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
			continue
		}
		if is := &pod.Spec.EphemeralContainers[at]; !equality.Semantic.DeepEqual(is, was) {
			changed := check.ChangedFields(is.EphemeralContainerCommon, was.EphemeralContainerCommon, equality.Semantic.DeepEqual)
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\nchanged: %v", was.Name, changed)))
		}
	}
	return errs
}
