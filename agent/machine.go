package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/host"
)

// machine contains the addresses and the resources of the node.
type machine struct {
	addresses   *host.Addresses
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
	addresses, err := readAddresses(cfg)
	if err != nil {
		return nil, err
	}
	m := &machine{addresses: addresses, capacity: capacity}
	m.allocatable = m.reserve(cfg)
	if cfg.CgroupRoot != "" {
		m.pageSizes = slices.Sorted(maps.Keys(host.HugePages("/sys/kernel/mm/hugepages")))
	}
	return m, nil
}

// readAddresses returns the node's addresses, of which the first is of the pods' primary family.
func readAddresses(cfg *Config) (*host.Addresses, error) {
	if cfg.NodeIP == "" {
		return host.ReadAddresses(cfg.Families), nil
	}
	ip, err := netip.ParseAddr(cfg.NodeIP)
	if err != nil {
		return nil, fmt.Errorf("agent: NodeIP: %w", err)
	}
	return host.Fixed(ip), nil
}

// setCPUs sets the node's CPUs to those that the CPU manager counts; 0: unknown, the capacity stays.
func (m *machine) setCPUs(processors int, cfg *Config) {
	if processors > 0 {
		m.capacity[corev1.ResourceCPU] = *resource.NewQuantity(int64(processors), resource.DecimalSI)
		m.allocatable = m.reserve(cfg)
	}
}

// reserve returns the capacity minus the reservations.
func (m *machine) reserve(cfg *Config) corev1.ResourceList {
	return cfg.Reserve.Allocatable(m.capacity, cfg.Eviction.Reservation(m.capacity))
}
