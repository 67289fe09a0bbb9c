package nodes

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"monopod/agent/network/retry"
)

const (
	// vxlanID is the VXLAN network identifier. It differs from that of flannel, 1.
	vxlanID = 0x6d70
	// vxlanPort is the UDP port that Linux and flannel use by default.
	vxlanPort = 8472
)

// StartVXLAN implements Machine.
func (k *Kernel) StartVXLAN(source netip.Addr) (mac string, err error) {
	attrs := named(k.Network.VXLANLink())
	attrs.HardwareAddr = macOf(k.Network.Gateways()[0])
	overhead := overheadVXLAN4
	if source.Is6() {
		overhead = overheadVXLAN6
	}
	link, err := k.tunnel(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: vxlanID, Port: vxlanPort, SrcAddr: source.AsSlice()},
		overhead, func(have netlink.Link) bool {
			vxlan, ok := have.(*netlink.Vxlan)
			return ok && vxlan.SrcAddr.Equal(source.AsSlice()) && vxlan.VxlanId == vxlanID && vxlan.Port == vxlanPort &&
				vxlan.HardwareAddr.String() == attrs.HardwareAddr.String()
		})
	if err != nil {
		return "", err
	}
	if err := k.Network.SetUpTunnel(link); err != nil {
		return "", fmt.Errorf("set up VXLAN: %w", err)
	}
	return attrs.HardwareAddr.String(), nil
}

// macOf derives the link address of the tunnel from the address of the node's gateway, which no other node has.
func macOf(gateway netip.Addr) net.HardwareAddr {
	hash := fnv.New32a()
	hash.Write(gateway.AsSlice())
	return hash.Sum(net.HardwareAddr{0x0a, 0x59})
}

// setNeighbors makes the link have exactly these neighbors: their addresses, and where their link addresses are.
func (k *Kernel) setNeighbors(neighbors []Neighbor) error {
	link, err := netlink.LinkByName(k.Network.VXLANLink())
	if err != nil {
		return fmt.Errorf("find %s: %w", k.Network.VXLANLink(), err)
	}
	index := link.Attrs().Index
	var want []netlink.Neigh
	for _, n := range neighbors {
		mac, err := net.ParseMAC(n.MAC)
		if err != nil {
			return err
		}
		want = append(want, netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
			State: netlink.NUD_PERMANENT, IP: n.At.AsSlice(), HardwareAddr: mac})
		for _, via := range n.Vias {
			family := netlink.FAMILY_V4
			if via.Is6() {
				family = netlink.FAMILY_V6
			}
			want = append(want, netlink.Neigh{LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT,
				IP: via.AsSlice(), HardwareAddr: mac})
		}
	}
	var errs []error
	key := func(n netlink.Neigh) string { return fmt.Sprint(n.Family, n.IP, n.HardwareAddr) }
	have := map[string]bool{}
	wanted := map[string]bool{}
	for _, n := range want {
		wanted[key(n)] = true
	}
	for _, family := range []int{unix.AF_BRIDGE, netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := retry.All(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, n := range all {
			n.Family = family
			switch {
			case n.State&netlink.NUD_PERMANENT == 0 || n.IP == nil:
			case wanted[key(n)]:
				have[key(n)] = true
			default:
				errs = append(errs, ignore(netlink.NeighDel(&n), unix.ENOENT))
			}
		}
	}
	for _, n := range want {
		if !have[key(n)] {
			errs = append(errs, netlink.NeighSet(&n))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the neighbors of VXLAN: %w", err)
	}
	return nil
}
