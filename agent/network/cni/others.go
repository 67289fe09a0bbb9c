package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
	"monopod/agent/network/retry"
)

// RouteProtocol marks the routes to the pods of other nodes; those of this network have one of its gateways as their
// source.
const RouteProtocol = 0x6d

// Others are the other nodes of the cluster, as the pod network needs them. They are in the file others.json, so that
// they also apply when the rules are restored or the plugin sets up the network.
type Others struct {
	// Ranges are the addresses of their pods, to which pods connect with their own addresses.
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	// Overhead is the number of bytes by which tunnels reduce the MTU of new pods.
	Overhead int `json:"overhead,omitempty"`
}

func (n Network) othersFile() string { return filepath.Join(n.Dir, "others.json") }

// others returns what SetOthers wrote; zero: there are no other nodes.
func (n Network) others() Others {
	var o Others
	data, err := os.ReadFile(n.othersFile())
	if err != nil || json.Unmarshal(data, &o) != nil {
		return Others{}
	}
	return o
}

// SetOthers tells the pod network about the other nodes. It does nothing if nothing has changed.
func (n Network) SetOthers(o Others) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(n.othersFile())
	none := len(o.Ranges) == 0 && o.Overhead == 0
	if err == nil && string(old) == string(data) || errors.Is(err, fs.ErrNotExist) && none {
		return nil
	}
	return n.pool().Lock(func() error {
		if none {
			err = os.Remove(n.othersFile())
		} else {
			err = writeFile(n.othersFile(), data)
		}
		if err == nil {
			err = n.natRules().SetUpNAT()
		}
		if err != nil {
			err = errors.Join(err, os.Remove(n.othersFile())) // so that the next call tries again
			return fmt.Errorf("keep the addresses of pods in connections to other nodes: %w", err)
		}
		return n.Adapt()
	})
}

// natRules returns the rules with the ranges of other nodes.
func (n Network) natRules() rules.Rules {
	r := n.rules()
	r.Nodes = n.others().Ranges
	return r
}

// WireGuardLink and VXLANLink are the names of the tunnels to other nodes. Unlike a bridge's, they do not begin with
// BridgePrefix: packets from there are not those of local pods.
func (n Network) WireGuardLink() string { return "mpwg-" + strings.TrimPrefix(n.Bridge, BridgePrefix) }

// VXLANLink is described at WireGuardLink.
func (n Network) VXLANLink() string { return "mpvx-" + strings.TrimPrefix(n.Bridge, BridgePrefix) }

// links are the network's links in the namespace of the host, except those of pods.
func (n Network) links() []string { return []string{n.Bridge, n.WireGuardLink(), n.VXLANLink()} }

// SetUpTunnel gives a tunnel the addresses of the gateways, with which connections of the host leave through it, and
// sets it up.
func (n Network) SetUpTunnel(link netlink.Link) error {
	if slices.ContainsFunc(n.Subnets, ipam.SameFamily(false)) {
		if err := sysctls(ipv6Sysctls(link.Attrs().Name)); err != nil {
			return err
		}
	}
	for _, ip := range n.Gateways() {
		err := netlink.AddrReplace(link, address(netip.PrefixFrom(ip, ip.BitLen())))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// TunnelMTU returns the MTU of a tunnel that adds this many bytes to each packet.
func (n Network) TunnelMTU(overhead int) (int, error) {
	mtu, err := uplinkMTU()
	if err != nil {
		return 0, err
	}
	mtu -= overhead
	if slices.ContainsFunc(n.Subnets, ipam.SameFamily(false)) {
		mtu = max(mtu, minMTU6)
	}
	return mtu, nil
}

// RoutesToOthers returns the routes to the pods of other nodes that the kernel has.
func (n Network) RoutesToOthers() ([]netlink.Route, error) {
	var out []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if !slices.ContainsFunc(n.Subnets, ipam.SameFamily(family == netlink.FAMILY_V4)) {
			continue
		}
		routes, err := retry.All(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Protocol: RouteProtocol}, netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			src, _ := netip.AddrFromSlice(r.Src)
			if slices.Contains(n.Gateways(), src.Unmap()) {
				r.Family = family
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// removeOthers removes routes and tunnels to other nodes.
func (n Network) removeOthers() error {
	routes, err := n.RoutesToOthers()
	errs := []error{err}
	for _, r := range routes {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
		}
	}
	for _, name := range []string{n.WireGuardLink(), n.VXLANLink()} {
		errs = append(errs, RemoveLink(name))
	}
	return errors.Join(errs...)
}

// RemoveLink removes a link, if there is one of the name.
func RemoveLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
