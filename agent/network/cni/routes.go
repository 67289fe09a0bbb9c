package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/retry"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	defaultMTU = 1500
	// minMTU6 is the smallest MTU of a link with IPv6 (RFC 8200).
	minMTU6 = 1280
	// rulePriority is the priority of our routing rules: after all tables of the host, of which the last has 32767.
	rulePriority = 40000
	// firstTable is the first number of our routing tables.
	firstTable = 0x6d70 << 16
)

// Adapt sets the MTU of the bridge, and thus of new pods, to that of the link of the default route, less what tunnels
// to other nodes need.
func (n Network) Adapt() error {
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return err
	}
	return n.fitMTU(bridge)
}

// fitMTU sets the bridge's MTU explicitly, because by default it changes with the MTU of the pods' links.
func (n Network) fitMTU(bridge netlink.Link) error {
	mtu, err := n.TunnelMTU(n.others().Overhead)
	if err != nil {
		return err
	}
	if bridge.Attrs().MTU == mtu {
		return nil
	}
	return netlink.LinkSetMTU(bridge, mtu)
}

// uplinkMTU returns the smallest MTU of the links of default routes; without any, 1500.
func uplinkMTU() (int, error) {
	indexes, err := uplinks()
	if err != nil {
		return 0, err
	}
	mtu := 0
	for _, index := range indexes {
		link, err := netlink.LinkByIndex(index)
		if err != nil || link.Attrs().Flags&net.FlagLoopback != 0 {
			continue // the link was removed, or the route has no real target
		}
		if m := link.Attrs().MTU; mtu == 0 || m < mtu {
			mtu = m
		}
	}
	if mtu == 0 {
		return defaultMTU, nil
	}
	return mtu, nil
}

// uplinks returns the indexes of the links of default routes.
func uplinks() ([]int, error) {
	var out []int
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retry.All(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst != nil && ipam.PrefixOf(r.Dst).Bits() != 0 {
				continue
			}
			out = append(out, r.LinkIndex)
			for _, hop := range r.MultiPath {
				out = append(out, hop.LinkIndex)
			}
		}
	}
	return out, nil
}

// routeServices adds a route to the addresses of Services for the host itself, which needs one if it has no default
// route, for instance: the kernel looks up the route before it translates the address. The link does not matter.
func (n Network) routeServices(bridge netlink.Link) error {
	var errs []error
	for _, services := range n.Services {
		i := slices.IndexFunc(n.Subnets, ipam.SameFamily(services.Addr().Is4()))
		if i < 0 {
			continue
		}
		route := &netlink.Route{
			LinkIndex: bridge.Attrs().Index, Dst: ipam.IPNet(services.Masked()), Src: ipam.Gateway(n.Subnets[i]).AsSlice(),
			Table: n.routingTable(), Scope: netlink.SCOPE_LINK,
		}
		errs = append(errs, netlink.RouteReplace(route))
	}
	return errors.Join(append(errs, n.setRoutingRules(n.Services))...)
}

// routingTable is the number of the instance's table of routes.
func (n Network) routingTable() int { return firstTable | int(ipam.Hash(n.Bridge)&0xffff) }

// setRoutingRules makes the kernel use the instance's table for exactly these ranges.
func (n Network) setRoutingRules(ranges []netip.Prefix) error {
	var errs []error
	var have []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := retry.All(func() ([]netlink.Rule, error) {
			return netlink.RuleListFiltered(family, &netlink.Rule{Table: n.routingTable()}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			if !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
				errs = append(errs, err)
			}
			continue
		}
		for _, r := range rules {
			if to := ipam.PrefixOf(r.Dst); slices.Contains(ranges, to) {
				have = append(have, to)
			} else {
				r.Family = family
				errs = append(errs, netlink.RuleDel(&r))
			}
		}
	}
	for _, to := range ranges {
		if slices.Contains(have, to) || !slices.ContainsFunc(n.Subnets, ipam.SameFamily(to.Addr().Is4())) {
			continue
		}
		rule := netlink.NewRule()
		rule.Dst, rule.Table, rule.Priority, rule.Family = ipam.IPNet(to), n.routingTable(), rulePriority, netlink.FAMILY_V4
		if to.Addr().Is6() {
			rule.Family = netlink.FAMILY_V6
		}
		if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
