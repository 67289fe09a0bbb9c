package allocate

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/service"
)

// usage counts how many Services have each address and port.
type usage struct {
	ips   map[netip.Addr]int
	ports map[int32]int

	services []*corev1.Service // the counted Services
}

func newUsage() usage { return usage{ips: map[netip.Addr]int{}, ports: map[int32]int{}} }

// update replaces the counted Services by now. Stored objects are immutable, so it skips the common prefix and suffix
// of both lists: usually a single Service differs.
func (u *usage) update(now []*corev1.Service) {
	was, head, tail := u.services, 0, 0
	for least := min(len(was), len(now)); head < least && was[head] == now[head]; {
		head++
	}
	for least := min(len(was), len(now)) - head; tail < least && was[len(was)-1-tail] == now[len(now)-1-tail]; {
		tail++
	}
	for _, svc := range was[head : len(was)-tail] {
		u.add(&svc.Spec, -1)
	}
	for _, svc := range now[head : len(now)-tail] {
		u.add(&svc.Spec, 1)
	}
	u.services = now
}

// add adds by to the counts of a Service's addresses and ports.
func (u *usage) add(spec *corev1.ServiceSpec, by int) {
	for _, text := range spec.ClusterIPs {
		if ip, err := parse(text); err == nil {
			count(u.ips, ip, by)
		}
	}
	if service.NeedsNodePorts(spec) {
		for _, p := range spec.Ports {
			count(u.ports, p.NodePort, by)
		}
	}
	if spec.HealthCheckNodePort != 0 {
		count(u.ports, spec.HealthCheckNodePort, by)
	}
}

func count[K comparable](counts map[K]int, key K, by int) {
	if counts[key] += by; counts[key] == 0 {
		delete(counts, key)
	}
}
