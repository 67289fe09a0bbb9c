package allocate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/registry/service"
)

// families sets ipFamilyPolicy and ipFamilies from the request, the stored Service and the configured ranges (upstream:
// initIPFamilyFields).
func (s *Services) families(next, cur *corev1.Service) field.ErrorList {
	spec, path := &next.Spec, field.NewPath("spec")
	if !service.NeedsAddress(spec) || cur != nil && keepsFamilies(spec, &cur.Spec) {
		return nil
	}
	switch {
	case spec.IPFamilyPolicy != nil:
	case cur != nil && cur.Spec.IPFamilyPolicy != nil:
		spec.IPFamilyPolicy = new(*cur.Spec.IPFamilyPolicy)
	case spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	default:
		spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	}
	if errs := service.ValidateClusterIPs(spec, path); len(errs) > 0 {
		return errs
	}
	errs := dropSecondFamily(spec, cur, path)
	errs = append(errs, onePolicy(spec, path)...)
	errs = append(errs, s.inferFamilies(spec, path)...)
	if len(errs) > 0 {
		return errs
	}
	if spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 {
		s.addFamilies(spec, 2) // a headless Service without selector may have endpoints of any family
		return nil
	}
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(s.cfg.Addresses) < 2 {
		errs = append(errs, field.Invalid(path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
			"this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if !s.rangeOf(family).IsValid() {
			errs = append(errs, field.Invalid(path.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	s.addFamilies(spec, len(s.cfg.Addresses))
	return nil
}

// keepsFamilies reports whether the Service keeps its families when the cluster gets a second one.
func keepsFamilies(next, cur *corev1.ServiceSpec) bool {
	return ptr.Deref(next.IPFamilyPolicy, "") == corev1.IPFamilyPolicyPreferDualStack &&
		ptr.Deref(cur.IPFamilyPolicy, "") == corev1.IPFamilyPolicyPreferDualStack &&
		slices.Equal(next.ClusterIPs, cur.ClusterIPs) && slices.Equal(next.IPFamilies, cur.IPFamilies)
}

// dropSecondFamily removes the second family if the policy is SingleStack. With another policy, it returns an error if
// the client omits it.
func dropSecondFamily(spec *corev1.ServiceSpec, cur *corev1.Service, path *field.Path) field.ErrorList {
	if cur == nil {
		return nil
	}
	old, at := &cur.Spec, path.Child("ipFamilyPolicy")
	if ptr.Deref(spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack {
		if slices.Equal(spec.ClusterIPs, old.ClusterIPs) && len(spec.ClusterIPs) > 1 {
			spec.ClusterIPs = spec.ClusterIPs[:1]
		}
		if slices.Equal(spec.IPFamilies, old.IPFamilies) && len(spec.IPFamilies) > 1 {
			spec.IPFamilies = spec.IPFamilies[:1]
		}
		return nil
	}
	var errs field.ErrorList
	if n := len(spec.ClusterIPs); n > 0 && n < len(old.ClusterIPs) {
		errs = append(errs,
			field.Invalid(at, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if n := len(spec.IPFamilies); n > 0 && n < len(old.IPFamilies) {
		errs = append(errs,
			field.Invalid(at, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// onePolicy returns the errors of a SingleStack Service with several families or addresses.
func onePolicy(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if ptr.Deref(spec.IPFamilyPolicy, "") != corev1.IPFamilyPolicySingleStack {
		return nil
	}
	const two = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
	var errs field.ErrorList
	at := path.Child("ipFamilyPolicy")
	if len(spec.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(at, spec.IPFamilyPolicy, fmt.Sprintf(two, "cluster IPs")))
	}
	if len(spec.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(at, spec.IPFamilyPolicy, fmt.Sprintf(two, "IP families")))
	}
	return errs
}

// inferFamilies sets the families from the requested addresses.
func (s *Services) inferFamilies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		family := service.FamilyOf(ip)
		switch {
		case i < len(spec.IPFamilies):
		case !s.rangeOf(family).IsValid():
			errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(i), spec.ClusterIPs,
				fmt.Sprintf("%s is not configured on this cluster", family)))
		default:
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	}
	return errs
}

// addFamilies completes the families: with the default family, and with the other one if the policy is dual-stack and a
// range is configured.
func (s *Services) addFamilies(spec *corev1.ServiceSpec, there int) {
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{familyOf(s.cfg.Addresses[0])}
	}
	if ptr.Deref(spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicySingleStack || len(spec.IPFamilies) > 1 || there < 2 {
		return
	}
	other := corev1.IPv4Protocol
	if spec.IPFamilies[0] == corev1.IPv4Protocol {
		other = corev1.IPv6Protocol
	}
	spec.IPFamilies = append(spec.IPFamilies, other)
}
