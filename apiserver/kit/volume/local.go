package volume

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

func emptyDirErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	dir := v.EmptyDir
	if dir.SizeLimit != nil && dir.SizeLimit.Sign() < 0 {
		return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
	}
	return nil
}

func hostPathDefault(v *corev1.VolumeSource) {
	if v.HostPath.Type == nil {
		v.HostPath.Type = new(corev1.HostPathUnset)
	}
}

// HostPathErrors returns the errors of a path on the node.
func HostPathErrors(v *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("path"), v.Path), check.NoBacksteps(v.Path, path.Child("path"))...)
	return append(errs, check.NilOr(path.Child("type"), v.Type,
		corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)...)
}

// NFSErrors returns the errors of an NFS share.
func NFSErrors(v *corev1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("server"), v.Server), check.Required(path.Child("path"), v.Path)...)
	if v.Path != "" && !filepath.IsAbs(v.Path) {
		errs = append(errs, field.Invalid(path.Child("path"), v.Path, "must be an absolute path"))
	}
	return errs
}

func imageDefault(v *corev1.VolumeSource) {
	if v.Image.PullPolicy == "" {
		v.Image.PullPolicy = PullPolicy(v.Image.Reference)
	}
}

func imageErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(at.Child("reference"), v.Image.Reference),
		check.UnsetOr(at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
			corev1.PullNever)...)
}

// PullPolicy returns the default pull policy of an image, in a volume or a container: Always
// without a tag or with the tag latest, else IfNotPresent.
func PullPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// emptyDirUsage returns the usage of one on disk; the file system limits one in memory.
func emptyDirUsage(v *corev1.VolumeSource) (limit *resource.Quantity, counts bool) {
	if v.EmptyDir.Medium != corev1.StorageMediumDefault {
		return nil, false
	}
	if v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
		return nil, true
	}
	return v.EmptyDir.SizeLimit, true
}
