package check

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// IsHugePages says that the resource is huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNative says that the name is Kubernetes' own.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// Overcommittable says that requests may be below limits.
func Overcommittable(name corev1.ResourceName) bool {
	return IsNative(name) && !IsHugePages(name)
}

// Amount is not negative, and whole where parts of one make no sense.
func Amount(path *field.Path, name corev1.ResourceName, amount resource.Quantity) field.ErrorList {
	if amount.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than or equal to 0")}
	}
	if !Overcommittable(name) && amount.MilliValue()%1000 != 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be an integer")}
	}
	return nil
}

// ResourceName is a name a node or a quota may use.
func ResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	if errs := Invalid(path, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if strings.Contains(string(name), "/") || StandardResource(name) || name == corev1.ResourcePods {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
}

// ContainerResourceName is a name a container may ask for.
func ContainerResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	errs := ResourceName(path, name)
	switch {
	case !strings.Contains(string(name), "/") && !StandardResource(name):
		return append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
	case len(errs) == 0 && !IsNative(name):
		return extendedResourceName(path, name)
	}
	return errs
}

// extendedResourceName must also be valid for the quota of its requests.
func extendedResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	bad := strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	if bad || len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) > 0 {
		return field.ErrorList{field.Invalid(path, name, "doesn't follow extended resource name standard")}
	}
	return nil
}

// StandardResource is what every container may ask for.
func StandardResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory ||
		name == corev1.ResourceEphemeralStorage || IsHugePages(name)
}
