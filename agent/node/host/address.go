package host

import (
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/process/netchange"
)

// IPs returns an address of this machine of each family, in their order, that pods and other machines can reach: that
// of the default route's interface, otherwise any global one. A family without such an address is omitted. If there is
// none at all, it returns loopback: the node does not need a network. No families: IPv4.
func IPs(families []corev1.IPFamily) []netip.Addr { return next(nil, families) }

// next is IPs for a machine that had the addresses. Without a default route of a family, it keeps the one that it had, also
// if that route is gone and there is no other: a cable that is out for a minute changes nothing.
func next(old []netip.Addr, families []corev1.IPFamily) []netip.Addr {
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	var out []netip.Addr
	for _, family := range families {
		uplink, others := addresses4()
		if family == corev1.IPv6Protocol {
			uplink, others = addresses6(readFile("ipv6_route"), readFile("if_inet6"))
		}
		if ip := prefer(old, family, uplink, others); ip.IsValid() {
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

// prefer returns the address of a family: invalid, if there never was one.
func prefer(old []netip.Addr, family corev1.IPFamily, uplink, others []netip.Addr) netip.Addr {
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

// readFile reads a file of the network namespace of the calling thread.
func readFile(name string) string {
	data, _ := os.ReadFile("/proc/thread-self/net/" + name) // absent: no addresses
	return string(data)
}

// addresses4 returns the IPv4 addresses of the interfaces of default routes, and those of all.
func addresses4() (uplink, all []netip.Addr) {
	addresses, _ := netchange.Addresses(unix.AF_INET) // on failure: none
	addresses = slices.DeleteFunc(addresses, func(a netchange.Address) bool { return !a.Addr().IsGlobalUnicast() })
	for _, name := range routed(readFile("route")) {
		link := netchange.Index(name)
		for _, a := range addresses {
			if a.Interface == link {
				uplink = append(uplink, a.Addr())
			}
		}
	}
	for _, a := range addresses {
		all = append(all, a.Addr())
	}
	return uplink, all
}

// routed returns the interfaces of IPv4 default routes.
func routed(routes string) []string {
	var out []string
	for line := range strings.Lines(routes) {
		fields := strings.Fields(line)
		if len(fields) >= 8 && fields[1] == "00000000" && fields[7] == "00000000" {
			out = append(out, fields[0])
		}
	}
	return out
}

// Flags of an IPv6 address that may not be used, or not for long, of linux/if_addr.h: temporary, failed duplicate
// address detection, deprecated, tentative.
const unusable = 0x01 | 0x08 | 0x20 | 0x40

// addresses6 returns the IPv6 addresses of the interfaces of default routes, and those of all, from the content of
// ipv6_route and if_inet6.
func addresses6(routes, addresses string) (uplink, all []netip.Addr) {
	uplinks := map[string]bool{}
	for line := range strings.Lines(routes) {
		// destination, its length, source, its length, next hop, metric, references, uses, flags, interface
		fields := strings.Fields(line)
		if len(fields) == 10 && fields[1] == "00" && fields[9] != "lo" {
			uplinks[fields[9]] = true
		}
	}
	for line := range strings.Lines(addresses) {
		// address, index, length, scope, flags, interface
		fields := strings.Fields(line)
		if len(fields) != 6 || fields[3] != "00" {
			continue
		}
		raw, err := hex.DecodeString(fields[0])
		flags, ferr := strconv.ParseUint(fields[4], 16, 8)
		ip, ok := netip.AddrFromSlice(raw)
		if err != nil || ferr != nil || !ok || flags&unusable != 0 {
			continue
		}
		if uplinks[fields[5]] {
			uplink = append(uplink, ip)
		}
		all = append(all, ip)
	}
	return uplink, all
}
