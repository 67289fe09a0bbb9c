package check

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IsHugePages reports whether the resource is huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNative reports whether the name is one of Kubernetes' own.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// Overcommittable reports whether requests of the resource may be below its limits.
func Overcommittable(name corev1.ResourceName) bool {
	return IsNative(name) && !IsHugePages(name)
}

// Amount requires an amount that is not negative, and whole for resources without fractions.
func Amount(path *field.Path, name corev1.ResourceName, amount resource.Quantity) field.ErrorList {
	if amount.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than or equal to 0")}
	}
	if !Overcommittable(name) && amount.MilliValue()%1000 != 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be an integer")}
	}
	return nil
}

// ResourceName validates a resource name of a node or a quota.
func ResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	if errs := Invalid(path, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if strings.Contains(string(name), "/") || StandardResource(name) || name == corev1.ResourcePods {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
}

// ContainerResourceName validates a resource name of a container.
func ContainerResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	errs := ResourceName(path, name)
	switch {
	case !strings.Contains(string(name), "/") && !StandardResource(name):
		return append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	case len(errs) == 0 && !IsNative(name):
		// The name must also be valid as a quota of requests.
		bad := strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		if bad || len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) > 0 {
			return field.ErrorList{field.Invalid(path, name, "doesn't follow extended resource name standard")}
		}
		return nil
	}
	return errs
}

// StandardResource reports whether every container may request the resource.
func StandardResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
		name == corev1.ResourceEphemeralStorage || IsHugePages(name)
}
