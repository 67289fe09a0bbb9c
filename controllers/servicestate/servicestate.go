// Package servicestate contains the parts that the controllers of Endpoints and EndpointSlices share.
//
//   - Index: Services by their selectors and pods by their labels, as seen by the watches. It finds the Services of a
//     pod and the pods of a Service without a scan.
//   - Member, Serving, Ports, Families, Hostname: a pod's part in the endpoints of a Service.
//   - Triggers: the time of the change that caused an update of endpoints.
package servicestate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/podstate"
)

// Selects reports whether the controllers maintain the endpoints of the Service: it has a selector, and its type is not
// ExternalName.
func Selects(s *corev1.Service) bool {
	return s != nil && len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName
}

// Headless reports whether the Service has no cluster IP.
func Headless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || s.Spec.ClusterIP == ""
}

// Families returns the IP families of the Service's endpoints.
func Families(s *corev1.Service) []corev1.IPFamily {
	switch {
	case len(s.Spec.IPFamilies) > 0:
		return s.Spec.IPFamilies
	case Headless(s):
		return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	case strings.Contains(s.Spec.ClusterIP, ":"):
		return []corev1.IPFamily{corev1.IPv6Protocol}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// Member reports whether the pod can be an endpoint: it has an address and has not finished. It may be terminating.
func Member(p *corev1.Pod) bool {
	return p != nil && !podstate.Finished(p) && (p.Status.PodIP != "" || len(p.Status.PodIPs) > 0)
}

// Addresses returns the pod's addresses of a family in canonical form.
func Addresses(p *corev1.Pod, family corev1.IPFamily) []string {
	var out []string
	for _, ip := range p.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil && addr.Unmap().Is6() == (family == corev1.IPv6Protocol) {
			out = append(out, addr.Unmap().String())
		}
	}
	return out
}

// Hostname returns the pod's DNS name in the domain of the Service; empty: none.
func Hostname(p *corev1.Pod, s *corev1.Service) string {
	if p.Spec.Subdomain == s.Name && p.Namespace == s.Namespace {
		return p.Spec.Hostname
	}
	return ""
}

// Reference returns an endpoint's reference to its pod.
func Reference(p *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// Port returns the number of a Service's port in the pod: the number of a named target port may differ between pods. It
// returns false if the pod has no such port.
func Port(p *corev1.Pod, port *corev1.ServicePort) (int32, bool) {
	if port.TargetPort.Type == intstr.Int {
		return port.TargetPort.IntVal, true
	}
	for i := range p.Spec.Containers {
		if n, ok := named(&p.Spec.Containers[i], port); ok {
			return n, true
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue // not a sidecar
		}
		if n, ok := named(c, port); ok {
			return n, true
		}
	}
	return 0, false
}

func named(c *corev1.Container, port *corev1.ServicePort) (int32, bool) {
	for _, p := range c.Ports {
		if p.Name == port.TargetPort.StrVal &&
			cmp.Or(p.Protocol, corev1.ProtocolTCP) == cmp.Or(port.Protocol, corev1.ProtocolTCP) {
			return p.ContainerPort, true
		}
	}
	return 0, false
}

// sameEndpoint reports whether two states of a pod result in the same endpoint of a Service that selects both.
func sameEndpoint(a, b *corev1.Pod) bool {
	if Member(a) != Member(b) {
		return false
	}
	return !Member(a) ||
		podstate.Ready(a) == podstate.Ready(b) &&
			(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
			slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
			a.Spec.NodeName == b.Spec.NodeName &&
			a.Spec.Hostname == b.Spec.Hostname && a.Spec.Subdomain == b.Spec.Subdomain
}

// sameService reports whether two states of a Service result in the same endpoints.
func sameService(a, b *corev1.Service) bool {
	return (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}
