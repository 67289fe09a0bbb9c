package env

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ServerFor returns the address at which a pod with the addresses ips reaches the API server, which listens at
// listen. It returns zero if the server only listens on loopback and the pod is not on the host network. If the
// server listens on all addresses, ServerFor returns the node's address on the pod network, which survives a change
// of the node's address; without one it returns node. interfaces are the addresses of the node's interfaces with
// their networks.
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

// WithServer returns list with server instead of the cluster IP of the Service kubernetes, for nodes that do not
// forward cluster IPs. If server is zero, it removes the Service.
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
