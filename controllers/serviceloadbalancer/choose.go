package serviceloadbalancer

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// maxSearch is the maximum number of addresses of a range that are tried; one machine does not have more Services.
const maxSearch = 1 << 16

// choose returns the addresses of a Service, and the reason if there are fewer than it requests. others contains the
// Services with addresses, oldest first.
func choose(s *corev1.Service, others []*corev1.Service, nodes []netip.Addr,
	pool []netip.Prefix) ([]netip.Addr, string) {
	if len(pool) > 0 {
		return fromPool(s, others, nodes, pool)
	}
	var out []netip.Addr
	for _, family := range s.Spec.IPFamilies {
		for _, ip := range nodes {
			if familyOf(ip) == family && !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	}
	if len(out) == 0 {
		return nil, "no node has an address of the Service's IP families"
	}
	// As in upstream, an unsupported loadBalancerIP is ignored: only the node's addresses exist.
	if ip, err := netip.ParseAddr(s.Spec.LoadBalancerIP); err == nil && slices.Contains(out, ip.Unmap()) {
		out = []netip.Addr{ip.Unmap()}
	}
	for _, other := range others {
		if p, ok := clash(s, other, out); ok {
			return nil, fmt.Sprintf("port %d/%s of the node's address belongs to the Service %s/%s", p.Port, p.Protocol,
				other.Namespace, other.Name)
		}
	}
	return out, ""
}

// clash returns a port that both Services use at one of the addresses; among two Services that have the address, the
// older one keeps it.
func clash(s, other *corev1.Service, ips []netip.Addr) (corev1.ServicePort, bool) {
	theirs := addresses(other)
	if len(addresses(s)) > 0 && older(s, other) < 0 ||
		!slices.ContainsFunc(ips, func(ip netip.Addr) bool { return slices.Contains(theirs, ip) }) {
		return corev1.ServicePort{}, false
	}
	for _, p := range s.Spec.Ports {
		if slices.ContainsFunc(other.Spec.Ports, func(q corev1.ServicePort) bool { return samePort(p, q) }) {
			return p, true
		}
	}
	return corev1.ServicePort{}, false
}

func samePort(p, q corev1.ServicePort) bool { return p.Port == q.Port && p.Protocol == q.Protocol }

// fromPool keeps the addresses of the Service, and chooses the first free one for each missing family.
func fromPool(s *corev1.Service, others []*corev1.Service, nodes []netip.Addr,
	pool []netip.Prefix) ([]netip.Addr, string) {
	used := map[netip.Addr]*corev1.Service{}
	for _, other := range slices.Backward(others) { // the oldest Service wins
		for _, ip := range addresses(other) {
			used[ip] = other
		}
	}
	free := func(ip netip.Addr) bool {
		return used[ip] == nil && !slices.Contains(nodes, ip)
	}
	var out []netip.Addr
	problem := ""
	wanted, err := netip.ParseAddr(s.Spec.LoadBalancerIP)
	wanted = wanted.Unmap()
	for _, family := range s.Spec.IPFamilies {
		var ip netip.Addr
		var why string
		if err == nil && familyOf(wanted) == family {
			ip, why = wanted, requested(wanted, used, pool, s)
		} else {
			ip, why = pick(s, family, used, free, pool)
		}
		if why != "" {
			problem = why
			continue
		}
		out = append(out, ip)
	}
	if len(out) > 0 && s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack {
		problem = ""
	}
	return out, problem
}

// requested returns the reason why a Service does not get its loadBalancerIP.
func requested(ip netip.Addr, used map[netip.Addr]*corev1.Service, pool []netip.Prefix, s *corev1.Service) string {
	other := used[ip]
	switch {
	case !inPool(ip, pool):
		return fmt.Sprintf("loadBalancerIP %s is not in --load-balancer-pool", ip)
	case other != nil && (!slices.Contains(addresses(s), ip) || older(other, s) < 0):
		return fmt.Sprintf("loadBalancerIP %s belongs to the Service %s/%s", ip, other.Namespace, other.Name)
	}
	return ""
}

// pick returns the Service's current address of a family, or a free one.
func pick(s *corev1.Service, family corev1.IPFamily, used map[netip.Addr]*corev1.Service, free func(netip.Addr) bool,
	pool []netip.Prefix) (netip.Addr, string) {
	for _, ip := range addresses(s) {
		if other := used[ip]; familyOf(ip) == family && inPool(ip, pool) && (other == nil || older(s, other) < 0) {
			return ip, ""
		}
	}
	for _, p := range pool {
		if familyOf(p.Addr()) != family {
			continue
		}
		ip := p.Addr()
		for n := 0; n < maxSearch && p.Contains(ip); n, ip = n+1, ip.Next() {
			if free(ip) {
				return ip, ""
			}
		}
	}
	return netip.Addr{}, fmt.Sprintf("no %s address of --load-balancer-pool is free", family)
}

func inPool(ip netip.Addr, pool []netip.Prefix) bool {
	return slices.ContainsFunc(pool, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// addresses returns the addresses of a Service.
func addresses(s *corev1.Service) []netip.Addr {
	var out []netip.Addr
	for _, in := range s.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(in.IP); err == nil {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// node contains the properties of a node that Services depend on.
type node struct {
	ready     bool
	addresses []netip.Addr
}

func nodeOf(n *corev1.Node) node {
	return node{addresses: reachable(n), ready: slices.ContainsFunc(n.Status.Conditions,
		func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})}
}

// reachable returns the external addresses of a node, or its internal ones if there are none. It returns nothing if the
// node's label excludes it from load balancers.
func reachable(n *corev1.Node) []netip.Addr {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
		return nil
	}
	var external, internal []netip.Addr
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || ip.IsLoopback() {
			continue
		}
		switch a.Type {
		case corev1.NodeExternalIP:
			external = append(external, ip.Unmap())
		case corev1.NodeInternalIP:
			internal = append(internal, ip.Unmap())
		}
	}
	if len(external) > 0 {
		return external
	}
	return internal
}

func familyOf(ip netip.Addr) corev1.IPFamily {
	if ip.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
