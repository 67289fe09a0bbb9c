package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

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
		return field.ErrorList{field.Invalid(path, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")}
	case len(set) > 1:
		return field.ErrorList{field.Invalid(path, "", "may not have more than one field specified at a time")}
	case v.Value != "":
		return field.ErrorList{field.Invalid(path, "", "may not be specified when `value` is not empty")}
	}
	switch {
	case from.FieldRef != nil:
		return check.FieldRef(from.FieldRef, []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
			"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"},
			path.Child("fieldRef"))
	case from.ResourceFieldRef != nil:
		return check.ResourceField(from.ResourceFieldRef, path.Child("resourceFieldRef"))
	case from.ConfigMapKeyRef != nil:
		return keyRefValidate(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, path.Child("configMapKeyRef"))
	case from.SecretKeyRef != nil:
		return keyRefValidate(from.SecretKeyRef.Name, from.SecretKeyRef.Key, path.Child("secretKeyRef"))
	}
	ref, at := from.FileKeyRef, path.Child("fileKeyRef")
	errs := check.Required(at.Child("volumeName"), ref.VolumeName)
	if v := volumes[ref.VolumeName]; ref.VolumeName != "" && (v == nil || v.EmptyDir == nil) {
		errs = append(errs, field.NotFound(at.Child("volumeName"), ref.VolumeName))
	}
	errs = append(errs, check.FilePath(ref.Path, at.Child("path"))...)
	return append(errs, check.Named(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)...)
}

func keyRefValidate(name, key string, path *field.Path) field.ErrorList {
	errs := check.Named(path.Child("name"), name, check.Subdomain)
	return append(errs, check.Named(path.Child("key"), key, validation.IsConfigMapKey)...)
}

func envFromValidate(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, at := &sources[i], path.Index(i)
		errs = append(errs, check.UnsetOrNamed(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName)...)
		switch set := check.UnionMembers(*s); len(set) {
		case 0:
			// upstream's path is the list
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
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
