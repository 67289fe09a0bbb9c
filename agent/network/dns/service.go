package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is an address of a Service's endpoints. host is its name below the Service.
type endpoint struct {
	ip    netip.Addr
	host  string
	named bool // by the pod's hostname; otherwise by its address
	ports []discoveryv1.EndpointPort
}

// endpointsOf returns the endpoints that have names: those that are ready.
func endpointsOf(svc *corev1.Service, eps []*discoveryv1.EndpointSlice) []endpoint {
	var all []endpoint
	for _, slice := range eps {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !svc.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, text := range e.Addresses {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				out := endpoint{ip: ip.Unmap(), host: strings.NewReplacer(".", "-", ":", "-").Replace(text), ports: slice.Ports}
				if e.Hostname != nil && *e.Hostname != "" {
					out.host, out.named = *e.Hostname, true
				}
				all = append(all, out)
			}
		}
	}
	return all
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

func clusterIPs(svc *corev1.Service) []netip.Addr {
	texts := svc.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{svc.Spec.ClusterIP}
	}
	var ips []netip.Addr
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// namedService is a Service and its name, for one answer.
type namedService struct {
	name string
	svc  *corev1.Service
	eps  []*discoveryv1.EndpointSlice
}

// self answers for the Service's name: its addresses, or for a headless Service those of its endpoints. A headless
// Service without endpoints does not exist.
func (n namedService) self(q dns.Question) Answer {
	if q.Qtype == dns.TypeSRV {
		return n.services(q, func(string, string) bool { return true })
	}
	if !headless(n.svc) {
		return addresses(q, clusterIPs(n.svc))
	}
	ready := endpointsOf(n.svc, n.eps)
	if len(ready) == 0 {
		return nameError()
	}
	ips := make([]netip.Addr, 0, len(ready))
	seen := map[netip.Addr]bool{}
	for _, e := range ready {
		if !seen[e.ip] {
			seen[e.ip] = true
			ips = append(ips, e.ip)
		}
	}
	return addresses(q, ips)
}

// endpoint answers for an endpoint's name.
func (n namedService) endpoint(q dns.Question, host string) Answer {
	var ips []netip.Addr
	for _, e := range endpointsOf(n.svc, n.eps) {
		if strings.EqualFold(e.host, host) {
			ips = append(ips, e.ip)
		}
	}
	if len(ips) == 0 {
		return nameError()
	}
	return addresses(q, ips)
}

// port answers for the name of a port and its protocol.
func (n namedService) port(q dns.Question, name, protocol string) Answer {
	matches := func(portName, p string) bool {
		return strings.EqualFold(portName, name) && strings.EqualFold(p, protocol)
	}
	a := n.services(dns.Question{Name: q.Name, Qtype: dns.TypeSRV}, matches)
	if len(a.Records) == 0 {
		return nameError()
	}
	if q.Qtype != dns.TypeSRV && q.Qtype != dns.TypeANY {
		return Answer{}
	}
	return a
}

// services returns the SRV records of the ports that match, and the addresses of their targets. Ports without a name
// have none.
func (n namedService) services(q dns.Question, matches func(name, protocol string) bool) (a Answer) {
	add := func(port int32, target string, ips []netip.Addr) {
		a.Records = append(a.Records,
			&dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Weight: 100, Port: uint16(port), Target: target})
		for _, ip := range ips {
			a.More = append(a.More, address(target, ip))
		}
	}
	if !headless(n.svc) {
		for _, p := range n.svc.Spec.Ports {
			if p.Name != "" && matches(p.Name, string(p.Protocol)) {
				add(p.Port, n.name, clusterIPs(n.svc))
			}
		}
		return a
	}
	for _, e := range endpointsOf(n.svc, n.eps) {
		for _, p := range e.ports {
			if p.Name != nil && *p.Name != "" && p.Port != nil && p.Protocol != nil && matches(*p.Name, string(*p.Protocol)) {
				add(*p.Port, e.host+"."+n.name, []netip.Addr{e.ip})
			}
		}
	}
	return a
}
