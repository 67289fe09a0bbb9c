package spec

import (
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SystemdResolvers is where systemd-resolved names the resolvers that it asks itself.
const SystemdResolvers = "/run/systemd/resolve/resolv.conf"

// Resolvers are the node's, which it reads whenever a sandbox is made: they change with the node's network.
type Resolvers struct {
	File     string // the node's resolv.conf
	Upstream string // those that a resolver on loopback asks, such as SystemdResolvers; empty: not known
}

// Of returns the node's resolvers for a pod. A resolver that listens on loopback, such as systemd-resolved at
// 127.0.0.53, is for pods on the node's network alone: others get those behind it, if they are known.
func (r Resolvers) Of(pod *corev1.Pod) *cri.DNSConfig {
	node := read(r.File)
	if pod.Spec.HostNetwork || r.Upstream == "" || len(node.Servers) == 0 || slices.ContainsFunc(node.Servers, notLoopback) {
		return node
	}
	if behind := read(r.Upstream); slices.ContainsFunc(behind.Servers, notLoopback) {
		return behind
	}
	return node
}

func notLoopback(server string) bool {
	ip, err := netip.ParseAddr(server)
	return err == nil && !ip.Unmap().IsLoopback()
}

// read returns what a resolv.conf says; nothing if it cannot be read.
func read(file string) *cri.DNSConfig {
	text, _ := os.ReadFile(file)
	return ParseResolv(string(text))
}
