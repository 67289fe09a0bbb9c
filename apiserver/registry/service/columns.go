package service

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func serviceColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("Type", "The type of the Service.", func(s *corev1.Service) string { return string(s.Spec.Type) }),
		table.Text("Cluster-IP", "The cluster IP.", func(s *corev1.Service) string {
			if len(s.Spec.ClusterIPs) == 0 {
				return table.None
			}
			return s.Spec.ClusterIPs[0]
		}),
		table.Text("External-IP", "External addresses.", serviceExternal),
		table.Text("Port(s)", "Ports with their node ports.", servicePortList),
		table.Age(),
		table.Text("Selector", "Selector of the pods.",
			func(s *corev1.Service) string { return labels.FormatLabels(s.Spec.Selector) }).Wide(),
	}
}

// serviceExternal returns the external addresses; "<pending>" until a load balancer reports one.
func serviceExternal(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return table.OrNone(strings.Join(s.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			all = AppendAddress(all, in.IP, in.Hostname)
		}
		if all = append(all, s.Spec.ExternalIPs...); len(all) > 0 {
			return strings.Join(all, ",")
		}
		return "<pending>"
	}
	return table.Unknown
}

// AppendAddress appends the address of a load balancer, or by default its host name, if it has either.
func AppendAddress(all []string, ip, hostname string) []string {
	switch {
	case ip != "":
		return append(all, ip)
	case hostname != "":
		return append(all, hostname)
	}
	return all
}

func servicePortList(s *corev1.Service) string {
	var all []string
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			all = append(all, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			all = append(all, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return table.OrNone(strings.Join(all, ","))
}

// serviceWarnings warns about fields that have no effect, are deprecated or have a non-canonical form.
func serviceWarnings(next, _ kind.Object) []string {
	service := next.(*corev1.Service)
	spec := &service.Spec
	var warnings []string
	if _, old := service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; old {
		warnings = append(warnings, fmt.Sprintf("annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, fmt.Sprintf("spec.trafficDistribution: %q is deprecated; use %q", *d,
			corev1.ServiceTrafficDistributionPreferSameZone))
	}
	path, headless := field.NewPath("spec"), Headless(spec)
	if headless && spec.LoadBalancerIP != "" {
		warnings = append(warnings, "spec.loadBalancerIP is ignored for headless services")
	}
	if headless && len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is ignored for headless services")
	}
	if headless && spec.SessionAffinity != corev1.ServiceAffinityNone {
		warnings = append(warnings, "spec.SessionAffinity is ignored for headless services")
	}
	if !headless {
		warnings = append(warnings, addressWarnings(path.Child("clusterIPs"), spec.ClusterIPs)...)
	}
	warnings = append(warnings, addressWarnings(path.Child("externalIPs"), spec.ExternalIPs)...)
	if netutils.ParseIPSloppy(spec.LoadBalancerIP) != nil { // validation ignores the field
		warnings = append(warnings, validation.GetWarningsForIP(path.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		warnings = append(warnings,
			validation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), strings.TrimSpace(cidr))...)
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if external && len(spec.ExternalIPs) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.externalIPs is ignored when spec.type is %q", spec.Type))
	}
	if !external && spec.ExternalName != "" {
		warnings = append(warnings,
			fmt.Sprintf("spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName))
	}
	return warnings
}

func addressWarnings(path *field.Path, ips []string) []string {
	var warnings []string
	for i, ip := range ips {
		warnings = append(warnings, validation.GetWarningsForIP(path.Index(i), ip)...)
	}
	return warnings
}
