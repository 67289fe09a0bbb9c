package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/volume"
)

// mountsValidate validates a container's mounts against the pod's volumes.
func mountsValidate(c *corev1.Container, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], path.Child("volumeMounts").Index(i)
		errs = append(errs, mountValidate(m, volumes, at)...)
		if m.MountPath != "" && seen[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		seen[m.MountPath] = true
		if p := m.MountPropagation; p != nil && *p == corev1.MountPropagationBidirectional &&
			!isPrivileged(c.SecurityContext) {
			errs = append(errs, field.Forbidden(at.Child("mountPropagation"),
				"Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	for i, d := range c.VolumeDevices {
		at, v := path.Child("volumeDevices").Index(i), volumes[d.Name]
		errs = slices.Concat(errs, check.Required(at.Child("name"), d.Name),
			check.Required(at.Child("devicePath"), d.DevicePath), check.NoBacksteps(d.DevicePath, at.Child("devicePath")))
		switch {
		case v == nil && d.Name != "":
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case v != nil && !volume.All().Block(v): // only a claim can be a block device
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, fmt.Sprintf(
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode, not volume %s", d.Name)))
		}
	}
	return errs
}

func mountValidate(m *corev1.VolumeMount, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	errs := check.Required(path.Child("name"), m.Name)
	if m.Name != "" && volumes[m.Name] == nil {
		errs = append(errs, field.NotFound(path.Child("name"), m.Name))
	}
	errs = append(errs, check.Required(path.Child("mountPath"), m.MountPath)...)
	if strings.Contains(m.MountPath, ":") {
		errs = append(errs, field.Invalid(path.Child("mountPath"), m.MountPath, "must not contain ':'"))
	}
	if m.SubPath != "" && m.SubPathExpr != "" {
		errs = append(errs,
			field.Invalid(path.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
	}
	errs = append(errs, check.LocalPath(m.SubPath, path.Child("subPath"))...)
	errs = append(errs, check.LocalPath(m.SubPathExpr, path.Child("subPathExpr"))...)
	errs = append(errs, check.NilOr(path.Child("mountPropagation"), m.MountPropagation,
		corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)...)
	recursive := path.Child("recursiveReadOnly")
	bad := check.NilOr(recursive, m.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled,
		corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	if len(bad) > 0 || m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return append(errs, bad...)
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(recursive, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs,
			field.Forbidden(recursive, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}
