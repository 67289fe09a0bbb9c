package spec

import (
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SystemdResolvers is the file in which systemd-resolved lists its upstream resolvers.
const SystemdResolvers = "/run/systemd/resolve/resolv.conf"

// Resolvers reads the node's resolver config. It must be read for each sandbox, because it changes with the network.
type Resolvers struct {
	File     string // the node's resolv.conf
	Upstream string // lists the upstream servers of a resolver on loopback, such as SystemdResolvers; empty: unknown
}

// Of returns the node's resolver config for a pod. Only pods on the host network reach a resolver that listens on
// loopback, such as systemd-resolved at 127.0.0.53. Other pods get its upstream servers, if they are known.
func (r Resolvers) Of(pod *corev1.Pod) *cri.DNSConfig {
	node := read(r.File)
	if pod.Spec.HostNetwork || r.Upstream == "" || len(node.Servers) == 0 ||
		slices.ContainsFunc(node.Servers, notLoopback) {
		return node
	}
	if upstream := read(r.Upstream); slices.ContainsFunc(upstream.Servers, notLoopback) {
		return upstream
	}
	return node
}

func notLoopback(server string) bool {
	ip, err := netip.ParseAddr(server)
	return err == nil && !ip.Unmap().IsLoopback()
}

// read returns the content of a resolv.conf; an empty config if the file cannot be read.
func read(file string) *cri.DNSConfig {
	text, _ := os.ReadFile(file)
	return ParseResolv(string(text))
}
