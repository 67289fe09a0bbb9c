package host

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// IPs returns one address of this machine for each family, in their order, that pods and other machines can reach: the
// address of the default route's interface, or else any global one. It omits a family without such an address. If there
// is none at all, it returns loopback, because the node does not need a network. No families: IPv4.
func IPs(families []corev1.IPFamily) []netip.Addr { return nextIPs(nil, families) }

// nextIPs is IPs for a machine that had the addresses. Without a default route of a family, it keeps the one that it
// had, also if that route is gone and there is no other: a cable that is out for a minute changes nothing.
func nextIPs(old []netip.Addr, families []corev1.IPFamily) []netip.Addr {
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	var out []netip.Addr
	for _, family := range families {
		number := netlink.FAMILY_V4
		if family == corev1.IPv6Protocol {
			number = netlink.FAMILY_V6
		}
		uplink, others := addresses(number)
		if ip := chooseAddress(old, family, uplink, others); ip.IsValid() {
			out = append(out, ip)
		}
	}
	switch {
	case len(out) > 0:
		return out
	case families[0] == corev1.IPv6Protocol:
		return []netip.Addr{netip.IPv6Loopback()}
	default:
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
}

// chooseAddress returns the address of a family; invalid if the family has none.
func chooseAddress(old []netip.Addr, family corev1.IPFamily, uplink, others []netip.Addr) netip.Addr {
	was := netip.Addr{}
	for _, ip := range old {
		if ip.Is6() == (family == corev1.IPv6Protocol) && !ip.IsLoopback() {
			was = ip
		}
	}
	switch {
	case slices.Contains(uplink, was), len(uplink) == 0 && (slices.Contains(others, was) || len(others) == 0):
		return was
	case len(uplink) > 0:
		return uplink[0]
	case len(others) > 0:
		return others[0]
	default:
		return netip.Addr{}
	}
}

// addresses returns the global addresses of the interfaces of default routes, and those of all interfaces, in the
// network namespace of the calling thread.
func addresses(family int) (uplink, all []netip.Addr) {
	// Errors are ignored. A list may be incomplete while links change; each change causes another read.
	routes, _ := netlink.RouteList(nil, family)
	addrs, _ := netlink.AddrList(nil, family)
	return splitByRoute(routes, addrs)
}

// splitByRoute returns the addresses of the links of default routes, in the order of the routes, and those of all
// links.
func splitByRoute(routes []netlink.Route, addrs []netlink.Addr) (uplink, all []netip.Addr) {
	byLink := map[int][]netip.Addr{}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		if !ok || !ip.IsGlobalUnicast() || ip.Is6() && a.Flags&unusable != 0 {
			continue
		}
		all = append(all, ip)
		byLink[a.LinkIndex] = append(byLink[a.LinkIndex], ip)
	}
	for _, r := range routes {
		if r.Dst != nil {
			if bits, _ := r.Dst.Mask.Size(); bits != 0 {
				continue
			}
		}
		uplink = append(uplink, byLink[r.LinkIndex]...)
		for _, hop := range r.MultiPath {
			uplink = append(uplink, byLink[hop.LinkIndex]...)
		}
	}
	return uplink, all
}

// unusable are the flags of IPv6 addresses that cannot be used, or not for long.
const unusable = unix.IFA_F_TEMPORARY | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE
