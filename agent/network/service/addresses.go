package service

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"monopod/agent/network/retry"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bind gives the link exactly these addresses of the pool. The kernel then answers ARP for the IPv4 ones on every link
// (arp_ignore=0), so that neighbours reach them without a route; IPv6 addresses need a route to this machine.
func bind(name string, pool []netip.Prefix, want []netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("bind the addresses of load balancers: %w", err)
	}
	have, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", name, err)
	}
	surplus, missing := difference(have, pool, want)
	var errs []error
	for _, a := range surplus {
		errs = append(errs, netlink.AddrDel(link, &a))
	}
	for _, ip := range missing {
		mask := net.CIDRMask(ip.BitLen(), ip.BitLen())
		a := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: mask}, Flags: unix.IFA_F_NOPREFIXROUTE}
		if ip.Is6() {
			a.Flags |= unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("bind %s: %w", ip, err))
		}
	}
	return errors.Join(errs...)
}

// difference returns the addresses of the pool to remove from a link and to add to it.
func difference(
	have []netlink.Addr, pool []netip.Prefix, want []netip.Addr) (surplus []netlink.Addr, missing []netip.Addr) {
	missing = slices.Clone(want)
	for _, a := range have {
		ip, ones := addr(a.IP), 0
		if a.Mask != nil {
			ones, _ = a.Mask.Size()
		}
		if ones != ip.BitLen() || !slices.ContainsFunc(pool, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			continue // not one of ours
		}
		if i := slices.Index(missing, ip); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		} else {
			surplus = append(surplus, a)
		}
	}
	return surplus, missing
}
