package check

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FieldRef requires a field of a pod in supported, or one label or annotation.
func FieldRef(ref *corev1.ObjectFieldSelector, supported []string, path *field.Path) field.ErrorList {
	if errs := append(Required(path.Child("apiVersion"), ref.APIVersion),
		Required(path.Child("fieldPath"), ref.FieldPath)...); len(errs) > 0 {
		return errs
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.Invalid(path.Child("apiVersion"), ref.APIVersion, "must be v1")}
	}
	of, key, subscript := splitSubscript(ref.FieldPath)
	at := path.Child("fieldPath")
	switch {
	case subscript && of == "metadata.labels":
		return Invalid(at, key, validation.IsQualifiedName(key))
	case subscript && of == "metadata.annotations":
		return Invalid(at, key, validation.IsQualifiedName(strings.ToLower(key)))
	case subscript:
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "does not support subscript")}
	case !slices.Contains(downwardFields(), ref.FieldPath):
		return field.ErrorList{field.Invalid(at, ref.FieldPath, "error converting fieldPath: field label not supported: "+
			ref.FieldPath)}
	}
	return UnsetOr(at, ref.FieldPath, supported...)
}

// downwardFields returns the fields of a pod that the downward API knows. Each place supports some of them (upstream:
// ConvertDownwardAPIFieldLabel).
func downwardFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
		"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
		"status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

// splitSubscript splits "metadata.labels['key']". It returns false for a path without a subscript.
func splitSubscript(path string) (of, key string, ok bool) {
	of, rest, ok := strings.Cut(path, "['")
	if !ok {
		return path, "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return of, key, ok
}

// ResourceField requires a resource of a container with a valid divisor.
func ResourceField(ref *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if ref.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	of, name, _ := strings.Cut(ref.Resource, ".")
	known := of == "limits" || of == "requests"
	if !known || !StandardResource(corev1.ResourceName(name)) {
		return UnsetOr(path.Child("resource"), ref.Resource, "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")
	}
	return divisorValidate(ref.Divisor, corev1.ResourceName(name), path.Child("divisor"))
}

// divisorValidate requires a divisor that the resource supports. An unset divisor is 1.
func divisorValidate(divisor resource.Quantity, name corev1.ResourceName, path *field.Path) field.ErrorList {
	units := []string{"0", "1", "1m"}
	if name != corev1.ResourceCPU {
		units = []string{"0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	}
	if slices.Contains(units, divisor.String()) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, divisor.String(), "only divisor's values "+strings.Join(units[1:], ", ")+
		" are supported with the "+string(name)+" resource")}
}
