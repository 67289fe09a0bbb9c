package service

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
)

const immutableOnceSet = "may not change once set"

// ValidateClusterIPs checks clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy against each other, before and after
// the allocation of addresses. path is the path of the spec.
func ValidateClusterIPs(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil // an ExternalName Service has no addresses
	}
	ips := path.Child("clusterIPs")
	var errs, malformed field.ErrorList
	switch { // clusterIP is the first of clusterIPs
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		errs = append(errs, field.Required(ips, ""))
	case spec.ClusterIP != "" && spec.ClusterIPs[0] != spec.ClusterIP:
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, family := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(at, family, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if slices.Contains(spec.IPFamilies[:i], family) {
			errs = append(errs, field.Duplicate(at, family))
		}
	}
	errs = append(errs, check.NilOr(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
		corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	for i, ip := range spec.ClusterIPs {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			malformed = append(malformed, check.IP(ips.Index(i), ip, nil)...)
		case len(spec.ClusterIPs) > 1:
			malformed = append(malformed, field.Invalid(ips, spec.ClusterIPs, "'None' must be the first and only value"))
		}
	}
	errs = append(errs, malformed...)
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	if len(malformed) > 0 {
		return errs
	}
	return append(errs, clusterIPsFamilies(spec, ips)...)
}

// clusterIPsFamilies allows one address of each family, in the order of ipFamilies.
func clusterIPsFamilies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.ClusterIPs) > 1 {
		if dual, err := netutils.IsDualStackIPStrings(spec.ClusterIPs); err != nil || !dual {
			errs = append(errs, field.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
		}
	}
	if Headless(spec) {
		return errs
	}
	for i, ip := range spec.ClusterIPs {
		if i < len(spec.IPFamilies) && FamilyOf(ip) != spec.IPFamilies[i] {
			errs = append(errs, field.Invalid(path.Index(i), ip,
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i)))
		}
	}
	return errs
}

// FamilyOf returns the IP family of an address.
func FamilyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// serviceUpdate rejects changes of immutable fields. While the Service has cluster IPs, an update can only add or
// remove the secondary one.
func serviceUpdate(next, cur *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if NeedsAddress(next) && NeedsAddress(cur) {
		errs = append(errs, clusterIPsUpdate(next, cur, path)...)
		errs = append(errs, familiesUpdate(next, cur, path)...)
	}
	if next.Type == corev1.ServiceTypeLoadBalancer && cur.Type == corev1.ServiceTypeLoadBalancer &&
		!ptr.Equal(next.LoadBalancerClass, cur.LoadBalancerClass) {
		errs = append(errs, field.Invalid(path.Child("loadBalancerClass"), next.LoadBalancerClass, immutableOnceSet))
	}
	if NeedsHealthCheck(next) && NeedsHealthCheck(cur) && next.HealthCheckNodePort != cur.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(path.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

func clusterIPsUpdate(next, cur *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if Headless(next) && Headless(cur) {
		return nil
	}
	var errs field.ErrorList
	first := path.Child("clusterIPs").Index(0)
	switch has, had := len(next.ClusterIPs), len(cur.ClusterIPs); {
	case has == 0 && had > 0:
		return field.ErrorList{field.Invalid(first, next.ClusterIPs, "primary clusterIP can not be unset")}
	case had == 0:
		return nil
	case has == had:
		for i := range cur.ClusterIPs {
			if next.ClusterIPs[i] != cur.ClusterIPs[i] {
				errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), next.ClusterIPs, immutableOnceSet))
			}
		}
		return errs
	case next.ClusterIPs[0] != cur.ClusterIPs[0]:
		errs = append(errs, field.Invalid(first, next.ClusterIPs, immutableOnceSet))
	}
	if len(next.ClusterIPs) == 1 && !singleStack(next) {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), next.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

func familiesUpdate(next, cur *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	has, had := len(next.IPFamilies), len(cur.IPFamilies)
	if Headless(next) || Headless(cur) || had == 0 {
		return nil
	}
	first := path.Child("ipFamilies").Index(0)
	if has == 0 {
		return field.ErrorList{field.Invalid(first, next.IPFamilies, "primary ipFamily can not be unset")}
	}
	var errs field.ErrorList
	for i := range min(has, had) {
		if next.IPFamilies[i] != cur.IPFamilies[i] {
			errs = append(errs, field.Invalid(first, next.IPFamilies, immutableOnceSet))
		}
	}
	if has < had && !singleStack(next) {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), next.IPFamilyPolicy,
			"must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}

func singleStack(spec *corev1.ServiceSpec) bool {
	return spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
}
