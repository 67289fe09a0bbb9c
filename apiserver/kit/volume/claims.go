package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/claim"
)

func claimErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return check.Required(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
}

// claimReferences also serves ephemeral volumes.
func claimReferences(pod *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	add("persistentvolumeclaims", claim.Of(pod, v))
}

func ephemeralDefault(v *corev1.VolumeSource) {
	if t := v.Ephemeral.VolumeClaimTemplate; t != nil && t.Spec.VolumeMode == nil {
		t.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
}

func ephemeralErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	if v.Ephemeral.VolumeClaimTemplate == nil {
		return field.ErrorList{field.Required(at.Child("volumeClaimTemplate"), "")}
	}
	return nil
}

func ephemeralWarnings(v *corev1.Volume, at *field.Path) []string {
	if v.Ephemeral.VolumeClaimTemplate == nil {
		return nil
	}
	return ClaimWarnings(&v.Ephemeral.VolumeClaimTemplate.Spec, at.Child("volumeClaimTemplate", "spec"))
}

// ClaimWarnings returns the warnings about a claim's spec at path.
func ClaimWarnings(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) []string {
	size := spec.Resources.Requests[corev1.ResourceStorage]
	if size.MilliValue()%1000 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
		path.Child("resources", "requests").Key("storage"), size.String())}
}

func csiErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return check.Required(at.Child("driver"), v.CSI.Driver)
}

func csiReferences(_ *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	if ref := v.CSI.NodePublishSecretRef; ref != nil {
		add("secrets", ref.Name)
	}
}
