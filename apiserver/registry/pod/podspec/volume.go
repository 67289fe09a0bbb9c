package podspec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
)

func volumesValidate(volumes []corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		errs = append(errs, check.Named(at.Child("name"), v.Name, validation.IsDNS1123Label)...)
		if v.Name != "" && seen[v.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		seen[v.Name] = true
		errs = append(errs, check.Union(at, v.VolumeSource, "volume type")...)
		errs = append(errs, volumeSourceValidate(&v.VolumeSource, at)...)
	}
	return errs
}

// volumeSourceValidate looks into the types an agent can mount without a
// storage system; of the others it wants what names the storage.
func volumeSourceValidate(v *corev1.VolumeSource, path *field.Path) field.ErrorList {
	switch {
	case v.EmptyDir != nil:
		return emptyDirValidate(v.EmptyDir, path.Child("emptyDir"))
	case v.HostPath != nil:
		return hostPathValidate(v.HostPath, path.Child("hostPath"))
	case v.Secret != nil:
		at := path.Child("secret")
		return slices.Concat(check.Required(at.Child("secretName"), v.Secret.SecretName),
			filesValidate(v.Secret.DefaultMode, v.Secret.Items, at))
	case v.ConfigMap != nil:
		at := path.Child("configMap")
		return slices.Concat(check.Required(at.Child("name"), v.ConfigMap.Name),
			filesValidate(v.ConfigMap.DefaultMode, v.ConfigMap.Items, at))
	case v.DownwardAPI != nil:
		at := path.Child("downwardAPI")
		return slices.Concat(modeValidate(v.DownwardAPI.DefaultMode, at.Child("defaultMode")),
			downwardValidate(v.DownwardAPI.Items, at.Child("items")))
	case v.Projected != nil:
		return projectedValidate(v.Projected, path.Child("projected"))
	}
	return remoteVolumeValidate(v, path)
}

func remoteVolumeValidate(v *corev1.VolumeSource, path *field.Path) field.ErrorList {
	switch {
	case v.PersistentVolumeClaim != nil:
		return check.Required(path.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName)
	case v.NFS != nil:
		return nfsValidate(v.NFS, path.Child("nfs"))
	case v.CSI != nil:
		return check.Required(path.Child("csi", "driver"), v.CSI.Driver)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate == nil:
		return field.ErrorList{field.Required(path.Child("ephemeral", "volumeClaimTemplate"), "")}
	case v.Image != nil:
		at := path.Child("image")
		return slices.Concat(check.Required(at.Child("reference"), v.Image.Reference),
			check.UnsetOr(at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever))
	}
	return nil
}

func nfsValidate(v *corev1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("server"), v.Server), check.Required(path.Child("path"), v.Path)...)
	if v.Path != "" && !filepath.IsAbs(v.Path) {
		errs = append(errs, field.Invalid(path.Child("path"), v.Path, "must be an absolute path"))
	}
	return errs
}

func emptyDirValidate(v *corev1.EmptyDirVolumeSource, path *field.Path) field.ErrorList {
	if v.SizeLimit != nil && v.SizeLimit.Sign() < 0 {
		return field.ErrorList{field.Forbidden(path.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
	}
	if v.Mode != nil && (*v.Mode < 0 || *v.Mode > 0o1777) { // it may be sticky, as /tmp is
		return field.ErrorList{field.Invalid(path.Child("mode"), *v.Mode, "must be a number between 0 and 01777 (octal), both inclusive")}
	}
	return nil
}

func hostPathValidate(v *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("path"), v.Path), noBacksteps(v.Path, path.Child("path"))...)
	return append(errs, check.NilOr(path.Child("type"), v.Type,
		corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
}

func modeValidate(mode *int32, path *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
}

// filesValidate checks how the keys of an object become files.
func filesValidate(mode *int32, items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	errs := modeValidate(mode, path.Child("defaultMode"))
	for i := range items {
		at := path.Child("items").Index(i)
		errs = append(errs, check.Required(at.Child("key"), items[i].Key)...)
		errs = append(errs, filePath(items[i].Path, at.Child("path"))...)
		errs = append(errs, modeValidate(items[i].Mode, at.Child("mode"))...)
	}
	return errs
}

// filePath is a path below a volume. The atomic writer keeps names that begin
// with ".." for itself.
func filePath(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := localPath(value, path)
	if len(errs) == 0 && strings.HasPrefix(value, "..") {
		errs = append(errs, field.Invalid(path, value, "must not start with '..'"))
	}
	return errs
}

func downwardValidate(items []corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, at := &items[i], path.Index(i)
		errs = append(errs, filePath(item.Path, at.Child("path"))...)
		errs = append(errs, modeValidate(item.Mode, at.Child("mode"))...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, fieldRefValidate(item.FieldRef, volumeFields(), at.Child("fieldRef"))...)
		case item.ResourceFieldRef != nil:
			errs = append(errs, check.Required(at.Child("resourceFieldRef", "containerName"), item.ResourceFieldRef.ContainerName)...)
			errs = append(errs, resourceFieldValidate(item.ResourceFieldRef, at.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
	}
	return errs
}

func projectedValidate(v *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	errs := modeValidate(v.DefaultMode, path.Child("defaultMode"))
	seen := map[string]bool{}
	for i := range v.Sources {
		at := path.Child("sources").Index(i)
		errs = append(errs, projectionValidate(&v.Sources[i], at)...)
		for _, file := range projectedFiles(&v.Sources[i]) {
			if file != "" && seen[file] {
				errs = append(errs, field.Invalid(at, file, "conflicting duplicate paths"))
			}
			seen[file] = true
		}
	}
	return errs
}

func projectionValidate(p *corev1.VolumeProjection, path *field.Path) field.ErrorList {
	errs := check.Union(path, *p, "projection type")
	if s := p.Secret; s != nil {
		errs = append(errs, check.Required(path.Child("secret", "name"), s.Name)...)
		errs = append(errs, filesValidate(nil, s.Items, path.Child("secret"))...)
	}
	if c := p.ConfigMap; c != nil {
		errs = append(errs, check.Required(path.Child("configMap", "name"), c.Name)...)
		errs = append(errs, filesValidate(nil, c.Items, path.Child("configMap"))...)
	}
	if d := p.DownwardAPI; d != nil {
		errs = append(errs, downwardValidate(d.Items, path.Child("downwardAPI", "items"))...)
	}
	if t := p.ServiceAccountToken; t != nil {
		errs = append(errs, tokenValidate(t, path.Child("serviceAccountToken"))...)
	}
	return errs
}

// tokenValidate bounds a token's life as upstream: ten minutes to 2^32 seconds.
func tokenValidate(t *corev1.ServiceAccountTokenProjection, path *field.Path) field.ErrorList {
	errs := filePath(t.Path, path.Child("path"))
	if s := t.ExpirationSeconds; s != nil && *s < 600 {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
	} else if s != nil && *s > 1<<32 {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// projectedFiles are the paths that a source names.
func projectedFiles(p *corev1.VolumeProjection) []string {
	var files []string
	if p.Secret != nil {
		files = append(files, ItemPaths(p.Secret.Items)...)
	}
	if p.ConfigMap != nil {
		files = append(files, ItemPaths(p.ConfigMap.Items)...)
	}
	if p.DownwardAPI != nil {
		for i := range p.DownwardAPI.Items {
			files = append(files, p.DownwardAPI.Items[i].Path)
		}
	}
	if p.ServiceAccountToken != nil {
		files = append(files, p.ServiceAccountToken.Path)
	}
	return files
}

func ItemPaths(items []corev1.KeyToPath) []string {
	var paths []string
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}

// mountsValidate checks a container's mounts against the pod's volumes.
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
		if p := m.MountPropagation; p != nil && *p == corev1.MountPropagationBidirectional && !isPrivileged(c.SecurityContext) {
			errs = append(errs, field.Forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers"))
		}
	}
	for i, d := range c.VolumeDevices {
		errs = append(errs, deviceValidate(d, volumes, path.Child("volumeDevices").Index(i))...)
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
		errs = append(errs, field.Invalid(path.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
	}
	errs = append(errs, localPath(m.SubPath, path.Child("subPath"))...)
	errs = append(errs, localPath(m.SubPathExpr, path.Child("subPathExpr"))...)
	errs = append(errs, check.NilOr(path.Child("mountPropagation"), m.MountPropagation,
		corev1.MountPropagationNone, corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)...)
	return append(errs, recursiveReadOnly(m, path.Child("recursiveReadOnly"))...)
}

func recursiveReadOnly(m *corev1.VolumeMount, path *field.Path) field.ErrorList {
	errs := check.NilOr(path, m.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	if len(errs) > 0 || m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return errs
	}
	if !m.ReadOnly {
		errs = append(errs, field.Forbidden(path, "may only be specified when readOnly is true"))
	}
	if p := m.MountPropagation; p != nil && *p != corev1.MountPropagationNone {
		errs = append(errs, field.Forbidden(path, "may only be specified when mountPropagation is None or not specified"))
	}
	return errs
}

// deviceValidate: only claims can be given to a container as a raw device.
func deviceValidate(d corev1.VolumeDevice, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("name"), d.Name), check.Required(path.Child("devicePath"), d.DevicePath)...)
	errs = append(errs, noBacksteps(d.DevicePath, path.Child("devicePath"))...)
	v := volumes[d.Name]
	switch {
	case v == nil && d.Name != "":
		errs = append(errs, field.NotFound(path.Child("name"), d.Name))
	case v != nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
		errs = append(errs, field.Invalid(path.Child("name"), d.Name, fmt.Sprintf("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode, not volume %s", d.Name)))
	}
	return errs
}
