package storage

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Upstream's limits for the status of an attachment.
const (
	maxErrorMessage  = 1024
	maxMetadataBytes = 256 << 10
)

func volumeAttachmentResource() kind.Resource {
	type attachment = storagev1.VolumeAttachment
	return kind.Resource{
		GVR:          client.VolumeAttachments,
		Kind:         "VolumeAttachment",
		Controller:   "persistentvolume-attach-detach-controller",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(attachment) },
		Prepare: kind.WithoutGeneration(
			func(obj kind.Object) (*storagev1.VolumeAttachmentSpec, *storagev1.VolumeAttachmentStatus) {
				a := obj.(*attachment)
				return &a.Spec, &a.Status
			}),
		Validate: attachmentValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Attacher", "The driver that attaches the volume.",
				func(a *attachment) string { return a.Spec.Attacher }),
			table.Text("PV", "The volume.", func(a *attachment) string {
				return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
			}),
			table.Text("Node", "The node that the volume is attached to.",
				func(a *attachment) string { return a.Spec.NodeName }),
			boolColumn("Attached", "Whether the volume is attached.",
				func(a *attachment) *bool { return &a.Status.Attached }, false),
			table.Age(),
		},
	}
}

func attachmentValidate(next, cur kind.Object, _ string) field.ErrorList {
	a, at, status := next.(*storagev1.VolumeAttachment), field.NewPath("spec"), field.NewPath("status")
	errs := slices.Concat(
		check.DriverName(a.Spec.Attacher, at.Child("attacher")),
		attachmentSource(&a.Spec.Source, at.Child("source")),
		check.Invalid(at.Child("nodeName"), a.Spec.NodeName, check.Subdomain(a.Spec.NodeName)))
	size := 0
	for key, value := range a.Status.AttachmentMetadata {
		size += len(key) + len(value)
	}
	if size > maxMetadataBytes {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", maxMetadataBytes))
	}
	errs = append(errs, attachmentError(a.Status.AttachError, status.Child("attachError"))...)
	errs = append(errs, attachmentError(a.Status.DetachError, status.Child("detachError"))...)
	if cur == nil {
		return errs
	}
	return append(errs, check.Immutable(at, a.Spec, cur.(*storagev1.VolumeAttachment).Spec)...)
}

// attachmentSource requires either the name of a volume or an inline volume.
func attachmentSource(s *storagev1.VolumeAttachmentSource, at *field.Path) field.ErrorList {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch name := s.PersistentVolumeName; {
	case name == nil && s.InlineVolumeSpec == nil:
		return field.ErrorList{field.Required(at, one)}
	case name != nil && s.InlineVolumeSpec != nil:
		return field.ErrorList{field.Forbidden(at, one)}
	case name != nil && *name == "":
		return field.ErrorList{field.Required(at.Child("persistentVolumeName"),
			"must specify non empty persistentVolumeName")}
	case name != nil:
		return check.Invalid(at.Child("persistentVolumeName"), *name, check.Subdomain(*name))
	}
	return inlineVolume(s.InlineVolumeSpec, at.Child("inlineVolumeSpec"))
}

// inlineVolume requires a CSI volume without the fields that belong to claims.
func inlineVolume(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	errs := append(volumeModes(spec, at), check.Forbidden(at, "may not be specified in the context of inline volumes",
		[]check.Field{{"claimRef", spec.ClaimRef != nil}, {"capacity", len(spec.Capacity) > 0},
			{"storageClassName", spec.StorageClassName != ""}})...)
	if p := spec.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"),
			"may only be "+string(corev1.PersistentVolumeReclaimRetain)+" in the context of inline volumes"))
	}
	if m := spec.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than "+
			string(corev1.PersistentVolumeFilesystem)+" in the context of inline volumes"))
	}
	if spec.CSI == nil {
		return append(errs, field.Required(at.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	return append(errs, volume.AllPersistent().Validate(&spec.PersistentVolumeSource, at)...)
}

func attachmentError(e *storagev1.VolumeError, at *field.Path) field.ErrorList {
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > maxErrorMessage {
		errs = append(errs, field.TooLong(at.Child("message"), "", maxErrorMessage))
	}
	if e.ErrorCode != nil && *e.ErrorCode < 0 {
		errs = append(errs,
			field.Invalid(at.Child("errorCode"), *e.ErrorCode, validation.InclusiveRangeError(0, math.MaxInt32)))
	}
	return errs
}
