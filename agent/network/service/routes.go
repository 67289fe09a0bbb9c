package service

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// labelProxyName marks a Service that another proxy serves.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Frontend is what clients connect to.
type Frontend struct {
	Addr     netip.Addr // unspecified: all addresses of the node
	Protocol corev1.Protocol
	Port     uint16
}

// Endpoint is the address and port of an endpoint.
type Endpoint struct {
	netip.AddrPort
	Local bool // on this node
}

// Route is where a Frontend leads. Without Endpoints, connections are rejected or, with Drop, dropped.
type Route struct {
	Endpoints []Endpoint // sorted, each once
	Affinity  time.Duration
	Drop      bool
}

// Routes are the routes of one Service and one IP family.
type Routes map[Frontend]Route

// Of returns the routes of a Service, for the addresses of one family, as they are on a node.
func Of(svc *corev1.Service, eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, node string) Routes {
	if !served(svc) || !has(&svc.Spec, family) {
		return nil
	}
	spec := &svc.Spec
	routes := Routes{}
	for _, port := range spec.Ports {
		all := endpoints(eps, port, family, node)
		inside := route(all, spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal)
		outside := route(all, spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal)
		inside.Affinity, outside.Affinity = affinity(spec), affinity(spec)
		add := func(address string, number int32, r Route) {
			if ip, err := netip.ParseAddr(address); err == nil && number > 0 && familyOf(ip) == family {
				routes[Frontend{Addr: ip.Unmap(), Protocol: protocolOf(port.Protocol), Port: uint16(number)}] = r
			}
		}
		for _, ip := range clusterIPs(spec) {
			add(ip, port.Port, inside)
		}
		for _, ip := range spec.ExternalIPs {
			add(ip, port.Port, outside)
		}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP {
				add(ingress.IP, port.Port, outside)
			}
		}
		add(anyAddress(family).String(), port.NodePort, outside)
	}
	return routes
}

// served reports whether the Service has addresses that this node translates.
func served(svc *corev1.Service) bool {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	_, other := svc.Labels[labelProxyName]
	_, headless := svc.Labels[corev1.IsHeadlessService]
	return !other && !headless
}

// has reports whether the Service has an address of the family.
func has(spec *corev1.ServiceSpec, family corev1.IPFamily) bool {
	return slices.ContainsFunc(clusterIPs(spec), func(text string) bool {
		ip, err := netip.ParseAddr(text)
		return err == nil && familyOf(ip) == family
	})
}

func clusterIPs(spec *corev1.ServiceSpec) []string {
	if len(spec.ClusterIPs) > 0 {
		return spec.ClusterIPs
	}
	return []string{spec.ClusterIP}
}

// candidate is an endpoint and its conditions.
type candidate struct {
	Endpoint
	ready       bool
	terminating bool // and still serving
}

// endpoints returns the port's endpoints that can be used, sorted.
func endpoints(eps []*discoveryv1.EndpointSlice, port corev1.ServicePort, family corev1.IPFamily, node string) []candidate {
	var all []candidate
	for _, slice := range eps {
		if corev1.IPFamily(slice.AddressType) != family {
			continue
		}
		number := portOf(slice, port)
		if number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			if c, ok := candidateOf(&slice.Endpoints[i], number, node); ok {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(a.Compare(b.AddrPort), ready(b)-ready(a))
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.AddrPort == b.AddrPort })
}

func ready(c candidate) int {
	if c.ready {
		return 1
	}
	return 0
}

// portOf returns the port of the slice's endpoints for a port of the Service; 0: it has none.
func portOf(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) uint16 {
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if p.Port != nil && name == port.Name && protocol == protocolOf(port.Protocol) {
			return uint16(*p.Port)
		}
	}
	return 0
}

// candidateOf returns an endpoint that serves or is ready; a condition that is not set means ready.
func candidateOf(e *discoveryv1.Endpoint, port uint16, node string) (candidate, bool) {
	if len(e.Addresses) == 0 {
		return candidate{}, false
	}
	ip, err := netip.ParseAddr(e.Addresses[0]) // its other addresses have no meaning, as upstream
	if err != nil {
		return candidate{}, false
	}
	c := candidate{Endpoint: Endpoint{AddrPort: netip.AddrPortFrom(ip.Unmap(), port), Local: e.NodeName != nil && *e.NodeName == node}}
	isSet := func(b *bool, unset bool) bool {
		if b == nil {
			return unset
		}
		return *b
	}
	c.ready = isSet(e.Conditions.Ready, true)
	c.terminating = isSet(e.Conditions.Serving, c.ready) && isSet(e.Conditions.Terminating, false)
	return c, c.ready || c.terminating
}

// route chooses from all endpoints, or for the policy Local from those of this node: the ready ones, and if there is
// none, those that terminate and still serve.
func route(all []candidate, local bool) Route {
	choose := func(ok func(candidate) bool) []Endpoint {
		var out []Endpoint
		for _, c := range all {
			if ok(c) && (c.Local || !local) {
				out = append(out, c.Endpoint)
			}
		}
		return out
	}
	r := Route{Endpoints: choose(func(c candidate) bool { return c.ready })}
	if len(r.Endpoints) == 0 {
		r.Endpoints = choose(func(c candidate) bool { return c.terminating })
	}
	r.Drop = len(r.Endpoints) == 0 && len(all) > 0
	return r
}

func affinity(spec *corev1.ServiceSpec) time.Duration {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	}
	return time.Duration(corev1.DefaultClientIPServiceAffinitySeconds) * time.Second
}

func protocolOf(p corev1.Protocol) corev1.Protocol { return cmp.Or(p, corev1.ProtocolTCP) }

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Unmap().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func anyAddress(family corev1.IPFamily) netip.Addr {
	if family == corev1.IPv4Protocol {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
