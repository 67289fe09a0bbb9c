package rules

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/retry"
)

// forgetFlows removes the kernel's UDP flows through host ports that do not lead to the pod: those to the pod that had
// the port before, and those to the host itself. The kernel would keep sending the packets of such a flow where its
// first packet went, for as long as the client sends.
func forgetFlows(pod []netip.Addr, ports []Port) error {
	udp := slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return !strings.EqualFold(p.Protocol, "udp") })
	if len(udp) == 0 {
		return nil
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if !slices.ContainsFunc(pod, func(ip netip.Addr) bool { return ip.Is4() == (family == unix.AF_INET) }) {
			continue
		}
		local, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, int(family)) })
		if err != nil {
			return err
		}
		isStale := staleFlow(func(f *netlink.ConntrackFlow) bool {
			toPort := func(p Port) bool { return p.HostPort == f.Forward.DstPort && p.at(addr(f.Forward.DstIP)) }
			toHost := func(a netlink.Addr) bool { return a.IP.Equal(f.Forward.DstIP) }
			return f.Forward.Protocol == unix.IPPROTO_UDP && slices.ContainsFunc(udp, toPort) &&
				slices.ContainsFunc(local, toHost) && !slices.Contains(pod, addr(f.Reverse.SrcIP))
		})
		_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, isStale)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// at reports whether a host port is at an address of the host.
func (p Port) at(ip netip.Addr) bool {
	host, err := p.host()
	return err == nil && (!host.IsValid() || host.IsUnspecified() || host == ip)
}

type staleFlow func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f staleFlow) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
