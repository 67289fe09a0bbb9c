package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
)

// machine contains the addresses and the resources of the node.
type machine struct {
	addresses   *host.Addresses // the first is of the pods' primary family
	capacity    corev1.ResourceList
	allocatable corev1.ResourceList
	pageSizes   []int64 // of huge pages, where there are cgroups
}

func readMachine(cfg *Config) (*machine, error) {
	capacity, err := host.Capacity(cfg.DataDir, cfg.MaxPods)
	if err != nil {
		return nil, err
	}
	if err := cfg.Reserve.Fits(capacity); err != nil {
		return nil, err
	}
	m := &machine{capacity: capacity}
	if cfg.NodeIP == "" {
		m.addresses = host.ReadAddresses(cfg.Families)
	} else {
		ip, err := netip.ParseAddr(cfg.NodeIP)
		if err != nil {
			return nil, fmt.Errorf("agent: NodeIP: %w", err)
		}
		m.addresses = host.Fixed(ip)
	}
	m.allocatable = m.reserve(cfg)
	if cfg.CgroupRoot != "" {
		m.pageSizes = slices.Sorted(maps.Keys(host.HugePages("/sys/kernel/mm/hugepages")))
	}
	return m, nil
}

// reserve returns the capacity minus the reservations.
func (m *machine) reserve(cfg *Config) corev1.ResourceList {
	return cfg.Reserve.Allocatable(m.capacity, cfg.Eviction.Reservation(m.capacity))
}
