package service

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/agent/network/nft"
)

// labelProxyName marks a Service that another proxy serves.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Frontend is an address and port to which clients connect.
type Frontend struct {
	Addr     netip.Addr // unspecified: all addresses of the node
	Port     uint16
	Protocol byte // of IP
	// Inside: for clients inside the cluster, which are this node and its pods. They have such a frontend if their route
	// differs from that of others.
	Inside bool
}

func (f Frontend) compare(other Frontend) int {
	inside := func(f Frontend) int {
		if f.Inside {
			return 1
		}
		return 0
	}
	return cmp.Or(f.Addr.Compare(other.Addr), cmp.Compare(f.Protocol, other.Protocol), cmp.Compare(f.Port, other.Port),
		inside(f)-inside(other))
}

// Node contains the properties of the node that decide its routes.
type Node struct {
	Name string
	Zone string         // its label topology.kubernetes.io/zone; empty: none
	Pool []netip.Prefix // addresses of load balancers that only Services use
}

// Endpoint is the address and port of an endpoint. There are many: it has no pointers, and half the size of an
// AddrPort.
type Endpoint struct {
	ip    [16]byte
	port  uint16
	Local bool // on this node
}

func endpointOf(at netip.AddrPort, local bool) Endpoint {
	return Endpoint{ip: at.Addr().As16(), port: at.Port(), Local: local}
}

// Addr is the address of the endpoint.
func (e Endpoint) Addr() netip.Addr { return netip.AddrFrom16(e.ip).Unmap() }

// AddrPort is the address and port of the endpoint.
func (e Endpoint) AddrPort() netip.AddrPort { return netip.AddrPortFrom(e.Addr(), e.port) }

// Route contains the endpoints of a Frontend. Without Endpoints, connections are rejected or, with Drop, dropped.
type Route struct {
	Endpoints []Endpoint // sorted, each once
	Affinity  time.Duration
	Drop      bool
	// Guarded: only clients in Sources are admitted. They are sorted, and none contains another.
	Guarded bool
	Sources []netip.Prefix
	// Closed: the other ports of the address are refused, because it is not an address of the machine.
	Closed bool
}

// Entry is a Frontend and its Route.
type Entry struct {
	Frontend
	Route
}

// Routes are the routes of one Service and one IP family, sorted by Frontend, each once.
type Routes []Entry

// find returns the Route of a Frontend; false: there is none.
func (r Routes) find(front Frontend) (Route, bool) {
	i, ok := slices.BinarySearchFunc(r, front, func(e Entry, f Frontend) int { return e.compare(f) })
	if !ok {
		return Route{}, false
	}
	return r[i].Route, true
}

// leads reports whether a Frontend leads to the endpoint, for clients inside or outside of the cluster.
func (r Routes) leads(front Frontend, to netip.AddrPort) bool {
	for _, front.Inside = range []bool{false, true} {
		route, _ := r.find(front)
		if slices.ContainsFunc(route.Endpoints, func(e Endpoint) bool { return e.AddrPort() == to }) {
			return true
		}
	}
	return false
}

// Of returns the routes of a Service, for the addresses of one family, as they are on a node.
func Of(svc *corev1.Service, eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, node Node) Routes {
	if !served(svc) || !hasFamily(&svc.Spec, family) {
		return nil
	}
	spec := &svc.Spec
	routes := map[Frontend]Route{}
	for _, port := range spec.Ports {
		all := endpoints(eps, port, family, node.Name)
		internal := route(all, spec.InternalTrafficPolicy != nil &&
			*spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal, node)
		external := route(all, spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal, node)
		every := route(all, false, node)
		internal.Affinity, external.Affinity, every.Affinity = affinity(spec), affinity(spec), affinity(spec)
		add := func(address string, number int32, inside, outside Route) {
			ip, err := netip.ParseAddr(address)
			if err != nil || number <= 0 || familyOf(ip) != family {
				return
			}
			front := Frontend{Addr: ip.Unmap(), Protocol: nft.ProtocolNumber(port.Protocol), Port: uint16(number)}
			routes[front] = outside
			if front.Inside = true; len(inside.Endpoints) > 0 && !slices.Equal(inside.Endpoints, outside.Endpoints) {
				routes[front] = inside
			}
		}
		for _, ip := range clusterIPs(spec) {
			add(ip, port.Port, internal, internal)
		}
		// As upstream, externalTrafficPolicy Local applies only to clients outside of the cluster.
		for _, ip := range spec.ExternalIPs {
			add(ip, port.Port, every, external)
		}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP {
				add(ingress.IP, port.Port, every, loadBalancerRoute(external, svc, ingress.IP, node))
			}
		}
		add(anyAddress(family).String(), port.NodePort, every, external)
	}
	sorted := make(Routes, 0, len(routes))
	for front, r := range routes {
		sorted = append(sorted, Entry{front, r})
	}
	slices.SortFunc(sorted, func(a, b Entry) int { return a.compare(b.Frontend) })
	return sorted
}

// served reports whether the Service has addresses that this node translates. Headless Services and those of another
// proxy have none.
func served(svc *corev1.Service) bool {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "" ||
		svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	_, other := svc.Labels[labelProxyName]
	_, headless := svc.Labels[corev1.IsHeadlessService]
	return !other && !headless
}

// hasFamily reports whether the Service has an address of the family.
func hasFamily(spec *corev1.ServiceSpec, family corev1.IPFamily) bool {
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

// loadBalancerRoute is the route of an address of a load balancer.
func loadBalancerRoute(r Route, svc *corev1.Service, address string, node Node) Route {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return r
	}
	r.Closed = slices.ContainsFunc(node.Pool, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
	r.Guarded, r.Sources = sources(svc, ip.Unmap().Is4())
	return r
}

// sources returns whether a load balancer limits its clients, and the ranges of one family that it admits. If there are
// only ranges of the other family, no client of this one is admitted. Ranges within others are omitted.
func sources(svc *corev1.Service, is4 bool) (guarded bool, ranges []netip.Prefix) {
	all := svc.Spec.LoadBalancerSourceRanges
	if text := strings.TrimSpace(svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]); len(all) == 0 &&
		text != "" {
		all = strings.Split(text, ",")
	}
	for _, text := range all {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && p.Addr().Is4() == is4 {
			ranges = append(ranges, p.Masked())
		}
	}
	slices.SortFunc(ranges, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	distinct := ranges[:0]
	for _, p := range ranges {
		if n := len(distinct); n == 0 || !distinct[n-1].Overlaps(p) {
			distinct = append(distinct, p)
		}
	}
	return len(all) > 0, distinct
}

// candidate is an endpoint, its conditions and its hints.
type candidate struct {
	Endpoint
	ready       bool
	terminating bool // and still serving
	hints       *discoveryv1.EndpointHints
}

// endpoints returns the port's endpoints that can be used, sorted.
func endpoints(eps []*discoveryv1.EndpointSlice, port corev1.ServicePort, family corev1.IPFamily,
	node string) []candidate {
	var all []candidate
	for _, slice := range eps {
		if _, headless := slice.Labels[corev1.IsHeadlessService]; headless || corev1.IPFamily(slice.AddressType) != family {
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
		return cmp.Or(a.AddrPort().Compare(b.AddrPort()), ready(b)-ready(a))
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.AddrPort() == b.AddrPort() })
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
	c := candidate{Endpoint: endpointOf(netip.AddrPortFrom(ip.Unmap(), port), e.NodeName != nil && *e.NodeName == node)}
	isSet := func(b *bool, unset bool) bool {
		if b == nil {
			return unset
		}
		return *b
	}
	c.ready = isSet(e.Conditions.Ready, true)
	c.terminating = isSet(e.Conditions.Serving, c.ready) && isSet(e.Conditions.Terminating, false)
	c.hints = e.Hints
	return c, c.ready || c.terminating
}

// route chooses from all endpoints, or for the policy Local from those of this node: the ready ones, and if there is
// none, those that terminate and still serve. Without the policy Local, hints limit the ready ones to those for the
// node or its zone.
func route(all []candidate, local bool, node Node) Route {
	choose := func(ok func(candidate) bool) []Endpoint {
		var out []Endpoint
		for _, c := range all {
			if ok(c) && (c.Local || !local) {
				out = append(out, c.Endpoint)
			}
		}
		return slices.Clip(slices.Clone(out))
	}
	hinted := func(candidate) bool { return true }
	if !local {
		hinted = byHints(all, node)
	}
	r := Route{Endpoints: choose(func(c candidate) bool { return c.ready && hinted(c) })}
	if len(r.Endpoints) == 0 {
		r.Endpoints = choose(func(c candidate) bool { return c.terminating })
	}
	r.Drop = len(r.Endpoints) == 0 && len(all) > 0
	return r
}

// byHints returns a filter of ready endpoints by their hints, as kube-proxy's topologyModeFromHints: those for
// the node if every ready endpoint has a hint for a node, otherwise those for its zone if every one has a hint for a
// zone; all of them if a hint is missing or none is for this node or zone.
func byHints(all []candidate, node Node) func(candidate) bool {
	forNode := func(c candidate) bool {
		return slices.ContainsFunc(c.hints.ForNodes, func(n discoveryv1.ForNode) bool { return n.Name == node.Name })
	}
	forZone := func(c candidate) bool {
		return slices.ContainsFunc(c.hints.ForZones, func(z discoveryv1.ForZone) bool { return z.Name == node.Zone })
	}
	nodes, zones, here, near := true, true, false, false
	for _, c := range all {
		if !c.ready {
			continue
		}
		if c.hints == nil {
			nodes, zones = false, false
			break
		}
		nodes, zones = nodes && len(c.hints.ForNodes) > 0, zones && len(c.hints.ForZones) > 0
		here, near = here || forNode(c), near || forZone(c)
	}
	switch {
	case nodes && here:
		return forNode
	case zones && near && node.Zone != "":
		return forZone
	}
	return func(candidate) bool { return true }
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

// checkPort returns the port of a Service's health checks; 0: it has none.
func checkPort(svc *corev1.Service) int32 {
	if !served(svc) || svc.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return 0
	}
	return svc.Spec.HealthCheckNodePort
}

// localReady counts the distinct endpoints of one family on this node that are ready. Terminating ones still get
// traffic while there are no others, but load balancers should use other nodes.
func localReady(svc *corev1.Service, eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, node string) int {
	seen := map[netip.Addr]struct{}{}
	for _, port := range svc.Spec.Ports {
		for _, c := range endpoints(eps, port, family, node) {
			if c.ready && c.Local {
				seen[c.Addr()] = struct{}{}
			}
		}
	}
	return len(seen)
}
