package policy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// countedNames returns the short names by which a quota counts objects. The name of all others is
// "count/<resource>.<group>".
func countedNames() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourcePersistentVolumeClaims, corev1.ResourceConfigMaps,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
}

// quotaName reports whether the name is one of Kubernetes' own for quotas.
func quotaName(name corev1.ResourceName) bool {
	switch name { // the resources that a quota sums over pods and claims
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage,
		corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return slices.Contains(countedNames(), name) || check.IsHugePages(name) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// resourceName checks that the name is one of Kubernetes' own or has a domain.
func resourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := check.Invalid(at, name, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if strings.Contains(string(name), "/") || quotaName(name) || name == corev1.ResourceStorage {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
}
