package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/retry"
	"monopod/apiserver/kit/kernel"
)

// Kernel is the Machine. It works in the network namespace of the calling thread.
type Kernel struct {
	Network cni.Network
	KeyFile string                    // contains the private key of WireGuard; created when it is first needed
	Port    uint16                    // of WireGuard
	Load    func(module string) error // loads a module, if the kernel does not do it by itself; nil: it does

	endpoints map[string]netip.AddrPort // of WireGuard's peers by key, as last written
}

var _ Machine = (*Kernel)(nil)

// Watch implements Machine.
func (k *Kernel) Watch(ctx context.Context) <-chan struct{} { return kernel.WatchNetwork(ctx) }

// Subnets implements Machine.
func (k *Kernel) Subnets(of []netip.Addr) ([]netip.Prefix, error) {
	addrs, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Prefix
	for _, ip := range of {
		for _, a := range addrs {
			if length, _ := a.Mask.Size(); a.IP.Equal(ip.AsSlice()) && length < ip.BitLen() && a.Peer == nil ||
				a.IP.Equal(ip.AsSlice()) && a.Peer != nil && length < ip.BitLen() && a.Peer.IP.Equal(a.IP) {
				out = append(out, netip.PrefixFrom(ip, length))
				break
			}
		}
	}
	return out, nil
}

// Apply implements Machine.
func (k *Kernel) Apply(p Plan, keepWireGuard, keepVXLAN bool) error {
	// First of all the pod network, so that no connection of a pod begins masqueraded.
	err := k.Network.SetOthers(cni.Others{Ranges: p.Ranges, Overhead: p.Overhead})
	var errs []error
	if keepWireGuard {
		errs = append(errs, k.setPeers(p.Peers))
	}
	if keepVXLAN {
		errs = append(errs, k.setNeighbors(p.Neighbors))
	}
	errs = append(errs, err, k.setRoutes(p.Routes))
	if !keepWireGuard {
		errs = append(errs, cni.RemoveLink(k.Network.WireGuardLink()))
	}
	if !keepVXLAN {
		errs = append(errs, cni.RemoveLink(k.Network.VXLANLink()))
	}
	return errors.Join(errs...)
}

// setRoutes makes the kernel have exactly these routes to other nodes.
func (k *Kernel) setRoutes(routes []Route) error {
	have, err := k.Network.RoutesToOthers()
	if err != nil {
		return err
	}
	var errs []error
	for _, want := range routes {
		route, err := k.route(want)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(have, func(r netlink.Route) bool { return ipam.PrefixOf(r.Dst) == want.To })
		if i >= 0 {
			old := have[i]
			have = slices.Delete(have, i, i+1)
			if old.Gw.Equal(route.Gw) && (route.LinkIndex == 0 || route.LinkIndex == old.LinkIndex) {
				continue
			}
			// A changed next hop is another route for IPv6.
			errs = append(errs, ignore(netlink.RouteDel(&old), unix.ESRCH))
		}
		if err := netlink.RouteReplace(route); err != nil {
			errs = append(errs, fmt.Errorf("add the route to %s: %w", want.To, err))
		}
	}
	for _, r := range have {
		errs = append(errs, ignore(netlink.RouteDel(&r), unix.ESRCH))
	}
	return errors.Join(errs...)
}

// route returns the kernel's route. Its source is this node's gateway: the host's connections to pods then have an
// address that tunnels accept and to which replies find back.
func (k *Kernel) route(r Route) (*netlink.Route, error) {
	i := slices.IndexFunc(k.Network.Subnets, ipam.SameFamily(r.To.Addr().Is4()))
	if i < 0 {
		return nil, fmt.Errorf("add the route to %s: this node has no addresses of the IP family", r.To)
	}
	out := &netlink.Route{
		Dst: ipam.IPNet(r.To), Src: k.Network.Gateways()[i].AsSlice(), Protocol: cni.RouteProtocol,
	}
	if r.Via.IsValid() {
		out.Gw = r.Via.AsSlice()
	}
	if r.Tunnel == NoTunnel {
		return out, nil
	}
	name := k.Network.WireGuardLink()
	if r.Tunnel == VXLAN {
		name = k.Network.VXLANLink()
		out.SetFlag(netlink.FLAG_ONLINK)
	} else {
		out.Scope = netlink.SCOPE_LINK
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	out.LinkIndex = link.Attrs().Index
	return out, nil
}

// ignore returns err unless it is one of these.
func ignore(err error, these ...error) error {
	for _, is := range these {
		if errors.Is(err, is) {
			return nil
		}
	}
	return err
}

// tunnel returns the link, and creates it if it does not exist or fits is false for it.
func (k *Kernel) tunnel(link netlink.Link, overhead int, fits func(netlink.Link) bool) (netlink.Link, error) {
	attrs := link.Attrs()
	mtu, err := k.Network.TunnelMTU(overhead)
	if err != nil {
		return nil, err
	}
	have, err := netlink.LinkByName(attrs.Name)
	if err == nil && !fits(have) {
		if err := cni.RemoveLink(attrs.Name); err != nil {
			return nil, err
		}
		have = nil
	}
	if err != nil || have == nil {
		if k.Load != nil {
			if err := k.Load(link.Type()); err != nil {
				return nil, err
			}
		}
		attrs.MTU = mtu
		err := netlink.LinkAdd(link)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("%s links are %w", link.Type(), ErrUnsupported)
		}
		if err != nil {
			return nil, fmt.Errorf("add %s: %w", attrs.Name, err)
		}
		if have, err = netlink.LinkByName(attrs.Name); err != nil {
			return nil, err
		}
	}
	if have.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(have, mtu); err != nil {
			return nil, fmt.Errorf("set the MTU of %s: %w", attrs.Name, err)
		}
	}
	return have, nil
}

// named returns the attributes of a new link.
func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}
