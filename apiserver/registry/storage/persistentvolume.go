package storage

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

func persistentVolumeResource() kind.Resource {
	return kind.Resource{
		GVR:          client.PersistentVolumes,
		Kind:         "PersistentVolume",
		Controller:   "persistentvolume-binder",
		ShortNames:   []string{"pv"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(corev1.PersistentVolume) },
		Default:      volumeDefault,
		Prepare:      volumePrepare,
		Stamp:        volumeStamp,
		Validate:     volumeValidate,
		Warnings:     volumeWarnings,
		Columns:      volumeColumns(),
	}
}

func volumeColumns() []table.Column {
	type volume = corev1.PersistentVolume
	return []table.Column{
		table.Name(),
		table.Text("Capacity", "The capacity.", func(v *volume) string { return amountText(v.Spec.Capacity) }),
		table.Text("Access Modes", "Access modes.", func(v *volume) string { return modesText(v.Spec.AccessModes) }),
		table.Text("Reclaim Policy", "What happens to the volume when its claim is deleted.",
			func(v *volume) string { return string(v.Spec.PersistentVolumeReclaimPolicy) }),
		table.Text("Status", "The phase of the volume.", func(v *volume) string { return phaseText(v, v.Status.Phase) }),
		table.Text("Claim", "The claim that the volume is bound to.", func(v *volume) string {
			if v.Spec.ClaimRef == nil {
				return ""
			}
			return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
		}),
		table.Text("StorageClass", "Its class.", claim.VolumeClass),
		table.Text("VolumeAttributesClass", "The VolumeAttributesClass.",
			func(v *volume) string { return table.OrUnset(v.Spec.VolumeAttributesClassName) }),
		table.Text("Reason", "The reason of the phase.", func(v *volume) string { return v.Status.Reason }),
		table.Age(),
		table.Text("VolumeMode", "Filesystem or Block.",
			func(v *volume) string { return table.OrUnset(v.Spec.VolumeMode) }).Wide(),
	}
}

func amountText(amounts corev1.ResourceList) string {
	amount := amounts[corev1.ResourceStorage]
	return amount.String()
}

func volumeDefault(obj kind.Object) {
	v := obj.(*corev1.PersistentVolume)
	kind.SetIfZero(&v.Status.Phase, corev1.VolumePending)
	kind.SetIfZero(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	kind.SetIfNil(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	volume.AllPersistent().Default(&v.Spec.PersistentVolumeSource)
}

func volumePrepare(next, cur kind.Object, subresource string) {
	v := next.(*corev1.PersistentVolume)
	if cur == nil {
		since := v.CreationTimestamp
		v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: &since}
		protect(v, claim.VolumeProtection)
		return
	}
	old := cur.(*corev1.PersistentVolume)
	switch subresource {
	case "":
		v.Status = *old.Status.DeepCopy()
	case "status":
		v.Spec = *old.Spec.DeepCopy()
		if v.Status.Phase == old.Status.Phase {
			kind.SetIfZero(&v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime)
		}
	}
}

// volumeStamp sets lastPhaseTransitionTime when the phase changes, unless the client sets it.
func volumeStamp(next, cur kind.Object, now metav1.Time) {
	if cur == nil {
		return
	}
	is, was := &next.(*corev1.PersistentVolume).Status, &cur.(*corev1.PersistentVolume).Status
	if is.Phase != was.Phase &&
		(is.LastPhaseTransitionTime == nil || is.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime)) {
		is.LastPhaseTransitionTime = &now
	}
}

// volumeValidate requires an access mode and an amount of storage, and no other resource. A local volume must have a
// node affinity.
func volumeValidate(next, cur kind.Object, subresource string) field.ErrorList {
	if subresource == "status" {
		return nil
	}
	spec, at := &next.(*corev1.PersistentVolume).Spec, field.NewPath("spec")
	errs := volumeModes(spec, at)
	if capacity := at.Child("capacity"); len(spec.Capacity) == 0 {
		errs = append(errs, field.Required(capacity, ""))
	} else if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		errs = append(errs, field.NotSupported(capacity, spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		errs = append(errs, positive(spec.Capacity[name], at.Child("capacity").Key(string(name)))...)
	}
	policy := at.Child("persistentVolumeReclaimPolicy")
	errs = append(errs, check.UnsetOr(policy, spec.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	affinity := at.Child("nodeAffinity")
	switch a := spec.NodeAffinity; {
	case a == nil && spec.Local != nil:
		errs = append(errs, field.Required(affinity, "Local volume requires node affinity"))
	case a == nil:
	case a.Required == nil:
		errs = append(errs, field.Required(affinity.Child("required"), "must specify required node constraints"))
	default:
		errs = append(errs, pod.NodeSelectorErrors(a.Required, affinity.Child("required"))...)
	}
	errs = append(errs, volume.AllPersistent().Validate(&spec.PersistentVolumeSource, at)...)
	if h := spec.HostPath; h != nil && path.Clean(h.Path) == "/" &&
		spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(policy, "may not be 'recycle' for a hostPath mount of '/'"))
	}
	errs = slices.Concat(errs,
		check.UnsetOrNamed(at.Child("storageClassName"), spec.StorageClassName, check.Subdomain),
		check.NilOr(at.Child("volumeMode"), spec.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem))
	class := at.Child("volumeAttributesClassName")
	if name := spec.VolumeAttributesClassName; name != nil && *name == "" {
		errs = append(errs, field.Required(class, "an empty string is disallowed"))
	} else if name != nil {
		errs = append(errs, check.Invalid(class, *name, check.Subdomain(*name))...)
		if spec.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	if cur == nil {
		return errs
	}
	return append(errs, volumeUpdate(spec, &cur.(*corev1.PersistentVolume).Spec)...)
}

func volumeModes(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	at = at.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return accessModes(spec.AccessModes, at)
}

// volumeUpdate rejects changes of immutable fields: the source, the volume mode and the node affinity.
func volumeUpdate(spec, old *corev1.PersistentVolumeSpec) field.ErrorList {
	var errs field.ErrorList
	source, was := spec.PersistentVolumeSource, old.PersistentVolumeSource
	if source.CSI != nil && was.CSI != nil { // the secret for expansion can be set once
		was.CSI = was.CSI.DeepCopy()
		kind.SetIfZero(&was.CSI.ControllerExpandSecretRef, source.CSI.ControllerExpandSecretRef)
	}
	if !equality.Semantic.DeepEqual(source, was) {
		changed := check.ChangedFields(source, was, equality.Semantic.DeepEqual)
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\nchanged: "+strings.Join(changed, ", ")))
	}
	errs = append(errs, check.Immutable(field.NewPath("volumeMode"), spec.VolumeMode, old.VolumeMode)...)
	if old.NodeAffinity != nil {
		errs = append(errs, check.Immutable(field.NewPath("nodeAffinity"), spec.NodeAffinity, old.NodeAffinity)...)
	}
	if old.VolumeAttributesClassName != nil && spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			"update from non-nil value to nil is forbidden"))
	}
	return errs
}

func volumeWarnings(next, cur kind.Object) []string {
	v := next.(*corev1.PersistentVolume)
	warnings := classWarning(v)
	if types := volume.AllPersistent(); cur == nil && !types.Mounts(&v.Spec.PersistentVolumeSource) {
		warnings = append(warnings, "spec: the node mounts PersistentVolumes of types "+
			strings.Join(types.Mounted(), " and ")+"; pods that use this volume do not start")
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "+
			"Instead, the recommended approach is to use dynamic provisioning.")
	}
	return warnings
}
