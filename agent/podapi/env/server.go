package env

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ServerFor returns the address at which a pod with the addresses ips reaches the API server that listens at
// listen; zero: none, because it listens only on loopback and the pod is not on the host network. For a server
// that listens on all addresses it is the node's address on the pod network, which survives a change of the
// node's address; without one it is node. interfaces are the node's, with their networks.
func ServerFor(listen netip.AddrPort, hostNetwork bool, ips []string, interfaces []netip.Prefix,
	node string) netip.AddrPort {
	at := listen.Addr().Unmap().WithZone("")
	to := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, listen.Port()) }
	switch {
	case hostNetwork && at.IsUnspecified():
		return to(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	case hostNetwork:
		return to(at)
	case at.IsLoopback():
		return netip.AddrPort{}
	case !at.IsUnspecified():
		return to(at)
	}
	for _, ip := range ips {
		pod, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		for _, p := range interfaces {
			if host := p.Addr().Unmap(); host != pod && !host.IsLoopback() && p.Contains(pod) {
				return to(host)
			}
		}
	}
	if host, err := netip.ParseAddr(node); err == nil && !host.IsLoopback() {
		return to(host)
	}
	return netip.AddrPort{}
}

// WithServer returns list with the Service kubernetes at the address server instead of its cluster IP, where
// nothing forwards that, or without that Service if server is zero.
func WithServer(list []*corev1.Service, server netip.AddrPort) []*corev1.Service {
	i := slices.IndexFunc(list, isServer)
	if i < 0 {
		return list
	}
	list = slices.Clone(list)
	if !server.IsValid() {
		return slices.DeleteFunc(list, isServer)
	}
	s := list[i].DeepCopy()
	s.Spec.ClusterIP = server.Addr().String()
	for j := range s.Spec.Ports {
		s.Spec.Ports[j].Port = int32(server.Port())
	}
	list[i] = s
	return list
}

func isServer(s *corev1.Service) bool {
	return s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes"
}
