package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
)

// envFields are what fieldRef may name in an environment.
func envFields() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

// volumeFields are what fieldRef may name in a downward API volume.
func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

func envValidate(env []corev1.EnvVar, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range env {
		v, at := &env[i], path.Index(i)
		errs = append(errs, check.Named(at.Child("name"), v.Name, validation.IsRelaxedEnvVarName)...)
		if v.ValueFrom != nil {
			errs = append(errs, envSourceValidate(v, volumes, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func envSourceValidate(v *corev1.EnvVar, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	from := v.ValueFrom
	switch set := check.UnionMembers(*from); {
	case len(set) == 0:
		return field.ErrorList{field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")}
	case len(set) > 1:
		return field.ErrorList{field.Invalid(path, "", "may not have more than one field specified at a time")}
	case v.Value != "":
		return field.ErrorList{field.Invalid(path, "", "may not be specified when `value` is not empty")}
	}
	switch {
	case from.FieldRef != nil:
		return fieldRefValidate(from.FieldRef, envFields(), path.Child("fieldRef"))
	case from.ResourceFieldRef != nil:
		return resourceFieldValidate(from.ResourceFieldRef, path.Child("resourceFieldRef"))
	case from.ConfigMapKeyRef != nil:
		return keyRefValidate(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, path.Child("configMapKeyRef"))
	case from.SecretKeyRef != nil:
		return keyRefValidate(from.SecretKeyRef.Name, from.SecretKeyRef.Key, path.Child("secretKeyRef"))
	}
	return fileKeyValidate(from.FileKeyRef, volumes, path.Child("fileKeyRef"))
}

func keyRefValidate(name, key string, path *field.Path) field.ErrorList {
	errs := check.Named(path.Child("name"), name, check.Subdomain)
	return append(errs, check.Named(path.Child("key"), key, validation.IsConfigMapKey)...)
}

func fileKeyValidate(ref *corev1.FileKeySelector, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	errs := check.Required(path.Child("volumeName"), ref.VolumeName)
	if v := volumes[ref.VolumeName]; ref.VolumeName != "" && (v == nil || v.EmptyDir == nil) {
		errs = append(errs, field.NotFound(path.Child("volumeName"), ref.VolumeName))
	}
	errs = append(errs, filePath(ref.Path, path.Child("path"))...)
	return append(errs, check.Named(path.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)...)
}

// fieldRefValidate: a field named in supported, or one label or annotation.
func fieldRefValidate(ref *corev1.ObjectFieldSelector, supported []string, path *field.Path) field.ErrorList {
	if errs := append(check.Required(path.Child("apiVersion"), ref.APIVersion), check.Required(path.Child("fieldPath"), ref.FieldPath)...); len(errs) > 0 {
		return errs
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), ref.APIVersion, "must be v1")}
	}
	of, key, subscript := splitSubscript(ref.FieldPath)
	at := path.Child("fieldPath")
	switch {
	case subscript && of == "metadata.labels":
		return check.Invalid(at, key, validation.IsQualifiedName(key))
	case subscript && of == "metadata.annotations":
		return check.Invalid(at, key, validation.IsQualifiedName(strings.ToLower(key)))
	case subscript:
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "does not support subscript")}
	case !slices.Contains(downwardFields(), ref.FieldPath):
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)}
	}
	return check.UnsetOr(at, ref.FieldPath, supported...)
}

// downwardFields are the fields of a pod that have a label at all; which of them
// may be used depends on the place (upstream: ConvertDownwardAPIFieldLabel).
func downwardFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
		"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

// splitSubscript parts "metadata.labels['key']"; false for a plain path.
func splitSubscript(path string) (of, key string, ok bool) {
	of, rest, ok := strings.Cut(path, "['")
	if !ok {
		return path, "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return of, key, ok
}

func resourceFieldValidate(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if ref.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	of, name, _ := strings.Cut(ref.Resource, ".")
	known := of == "limits" || of == "requests"
	if !known || !check.StandardResource(corev1.ResourceName(name)) {
		return check.UnsetOr(path.Child("resource"), ref.Resource, "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	return divisorValidate(ref.Divisor, corev1.ResourceName(name), path.Child("divisor"))
}

// divisorValidate takes the units people count in; unset is 1.
func divisorValidate(divisor resource.Quantity, name corev1.ResourceName, path *field.Path) field.ErrorList {
	units := []string{"0", "1", "1m"}
	if name != corev1.ResourceCPU {
		units = []string{"0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	}
	if slices.Contains(units, divisor.String()) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, divisor.String(), "only divisor's values "+strings.Join(units[1:], ", ")+" are supported with the "+string(name)+" resource")}
}

func envFromValidate(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, at := &sources[i], path.Index(i)
		errs = append(errs, check.UnsetOrNamed(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName)...)
		switch set := check.UnionMembers(*s); len(set) {
		case 0:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")) // the list, as upstream
		case 1:
		default:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		}
		if s.ConfigMapRef != nil {
			errs = append(errs, check.Named(at.Child("configMapRef", "name"), s.ConfigMapRef.Name, check.Subdomain)...)
		}
		if s.SecretRef != nil {
			errs = append(errs, check.Named(at.Child("secretRef", "name"), s.SecretRef.Name, check.Subdomain)...)
		}
	}
	return errs
}
