package service

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

const loadBalancerOnly = "may only be used when `type` is 'LoadBalancer'"

// serviceLoadBalancer checks the fields of type LoadBalancer. The path LoadBalancerSourceRanges has a capital letter
// upstream, too.
func serviceLoadBalancer(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := spec.Type == corev1.ServiceTypeLoadBalancer
	ranges := path.Child("LoadBalancerSourceRanges")
	if len(spec.LoadBalancerSourceRanges) > 0 && !balanced {
		errs = append(errs, field.Forbidden(ranges, loadBalancerOnly))
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		errs = append(errs, check.CIDR(ranges.Index(i), strings.TrimSpace(cidr), nil)...)
	}
	if spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(path.Child("allocateLoadBalancerNodePorts"), loadBalancerOnly))
	}
	class := path.Child("loadBalancerClass")
	switch {
	case spec.LoadBalancerClass == nil:
	case balanced:
		errs = append(errs,
			check.Invalid(class, *spec.LoadBalancerClass, validation.IsQualifiedName(*spec.LoadBalancerClass))...)
	default:
		errs = append(errs, field.Forbidden(class, loadBalancerOnly))
	}
	return errs
}

// serviceSourceAnnotation checks the annotation that the field loadBalancerSourceRanges has replaced. It is ignored if
// the field is set.
func serviceSourceAnnotation(service *corev1.Service) field.ErrorList {
	text, set := service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !set || len(service.Spec.LoadBalancerSourceRanges) > 0 {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(path, loadBalancerOnly))
	}
	if strings.TrimSpace(text) == "" {
		return errs
	}
	for cidr := range strings.SplitSeq(text, ",") {
		errs = append(errs, check.CIDR(path, strings.TrimSpace(cidr), nil)...)
	}
	return errs
}

// serviceTraffic checks the traffic policies and the health check node port.
func serviceTraffic(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	external, policy := path.Child("externalTrafficPolicy"), spec.ExternalTrafficPolicy
	if ExternallyAccessible(spec) {
		errs = check.OneOf(external, policy, corev1.ServiceExternalTrafficPolicyCluster,
			corev1.ServiceExternalTrafficPolicyLocal)
	} else if policy != "" {
		errs = append(errs, field.Invalid(external, policy, "may only be set for externally-accessible services"))
	}
	at, port := path.Child("healthCheckNodePort"), spec.HealthCheckNodePort
	switch needed := NeedsHealthCheck(spec); {
	case needed && port == 0:
		errs = append(errs, field.Required(at, ""))
	case needed:
		errs = append(errs, check.Port(at, port)...)
	case port != 0:
		errs = append(errs, field.Invalid(at, port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	internal := path.Child("internalTrafficPolicy")
	if spec.InternalTrafficPolicy == nil && inCluster(spec.Type) {
		errs = append(errs, field.Required(internal, ""))
	}
	errs = append(errs, check.NilOr(internal, spec.InternalTrafficPolicy,
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, check.NilOr(path.Child("trafficDistribution"), spec.TrafficDistribution,
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode,
		corev1.ServiceTrafficDistributionPreferSameZone)...)
}

// serviceStatus checks the addresses that a load balancer reports.
func serviceStatus(service, old *corev1.Service) field.ErrorList {
	path := field.NewPath("status", "loadBalancer", "ingress")
	ingress := service.Status.LoadBalancer.Ingress
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer && len(ingress) > 0 {
		return field.ErrorList{field.Forbidden(path, "may only be used when `spec.type` is LoadBalancer")}
	}
	var known []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		known = append(known, in.IP)
	}
	var errs field.ErrorList
	for i, in := range ingress {
		errs = append(errs, check.BalancerAddress(path.Index(i), in.IP, in.Hostname, known)...)
		mode := path.Index(i).Child("ipMode")
		switch {
		case in.IP != "" && in.IPMode == nil:
			errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
		case in.IP == "" && in.IPMode != nil:
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		default:
			errs = append(errs, check.NilOr(mode, in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
	}
	return errs
}
