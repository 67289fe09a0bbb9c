package service

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/retry"
)

// forgetFlows removes the kernel's UDP flows through changed frontends that do not lead to one of their endpoints.
// The kernel would keep sending the packets of such a flow where its first packet went, for as long as the client
// sends: UDP has no end of a connection.
func (t *table) forgetFlows() error {
	if len(t.udp) == 0 {
		return nil
	}
	family := unix.AF_INET
	if t.IPFamily == corev1.IPv6Protocol {
		family = unix.AF_INET6
	}
	addresses, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
	if err != nil {
		return err
	}
	local := map[netip.Addr]bool{}
	for _, a := range addresses {
		local[addr(a.IP)] = true
	}
	if t.flows == nil {
		if t.flows, err = netlink.NewHandle(unix.NETLINK_NETFILTER); err != nil {
			return err
		}
	}
	stale := staleFlow(func(flow *netlink.ConntrackFlow) bool { return t.stale(flow, local) })
	_, err = t.flows.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), stale)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.closeFlows()
		return err
	}
	clear(t.udp)
	return nil
}

func (t *table) closeFlows() {
	if t.flows != nil {
		t.flows.Close()
		t.flows = nil
	}
}

type staleFlow func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f staleFlow) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

// stale reports whether a flow entered through a changed frontend and leads elsewhere than to its endpoints.
func (t *table) stale(flow *netlink.ConntrackFlow, local map[netip.Addr]bool) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	front := Frontend{Addr: addr(flow.Forward.DstIP), Protocol: unix.IPPROTO_UDP, Port: flow.Forward.DstPort}
	if _, changed := t.udp[front]; !changed {
		if !local[front.Addr] {
			return false
		}
		front.Addr = anyAddress(t.IPFamily)
		if _, changed := t.udp[front]; !changed {
			return false
		}
	}
	to := netip.AddrPortFrom(addr(flow.Reverse.SrcIP), flow.Reverse.SrcPort)
	return !t.routesOf(front).leads(front, to)
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
