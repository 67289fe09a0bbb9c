package dns

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/follow"
)

// endpoint is an address of a Service's endpoints. Its host is its name below the Service.
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

// opened is a Service for one answer.
type opened struct {
	name string
	svc  *corev1.Service
	eps  []*discoveryv1.EndpointSlice
}

func (z *Zone) open(key follow.Key, svc *corev1.Service, eps []*discoveryv1.EndpointSlice) opened {
	return opened{name: z.serviceName(key), svc: svc, eps: eps}
}

// whole answers for the Service's name: its addresses, or those of the endpoints of a headless one; without
// endpoints, it does not exist.
func (o opened) whole(q dns.Question) Answer {
	if q.Qtype == dns.TypeSRV {
		return o.services(q, func(string, string) bool { return true })
	}
	if !headless(o.svc) {
		return addresses(q, clusterIPs(o.svc))
	}
	ready := endpointsOf(o.svc, o.eps)
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
func (o opened) endpoint(q dns.Question, host string) Answer {
	var ips []netip.Addr
	for _, e := range endpointsOf(o.svc, o.eps) {
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
func (o opened) port(q dns.Question, name, protocol string) Answer {
	is := func(n, p string) bool { return strings.EqualFold(n, name) && strings.EqualFold(p, protocol) }
	a := o.services(dns.Question{Name: q.Name, Qtype: dns.TypeSRV}, is)
	if len(a.Records) == 0 {
		return nameError()
	}
	if q.Qtype != dns.TypeSRV && q.Qtype != dns.TypeANY {
		return Answer{}
	}
	return a
}

// services are the SRV records of the ports for which is returns true, and the addresses that they name. Ports
// without a name have none.
func (o opened) services(q dns.Question, is func(name, protocol string) bool) (a Answer) {
	add := func(port int32, target string, ips []netip.Addr) {
		a.Records = append(a.Records,
			&dns.SRV{Hdr: header(q.Name, dns.TypeSRV), Weight: 100, Port: uint16(port), Target: target})
		for _, ip := range ips {
			a.More = append(a.More, address(target, ip))
		}
	}
	if !headless(o.svc) {
		for _, p := range o.svc.Spec.Ports {
			if p.Name != "" && is(p.Name, string(p.Protocol)) {
				add(p.Port, o.name, clusterIPs(o.svc))
			}
		}
		return a
	}
	for _, e := range endpointsOf(o.svc, o.eps) {
		for _, p := range e.ports {
			if p.Name != nil && *p.Name != "" && p.Port != nil && p.Protocol != nil && is(*p.Name, string(*p.Protocol)) {
				add(*p.Port, e.host+"."+o.name, []netip.Addr{e.ip})
			}
		}
	}
	return a
}
