package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
)

func add(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	ports := conf.RuntimeConfig.PortMappings
	ip, err := conf.allocate(holder{Container: args.container, IfName: args.ifname, Netns: args.netns, Boot: boot, Ports: len(ports) > 0})
	if err != nil {
		return nil, fmt.Errorf("allocate an address: %w", err)
	}
	result, err := conf.connect(args, ip, ports)
	if err != nil {
		return nil, errors.Join(err, conf.release(args.container, args.ifname))
	}
	return result, nil
}

// connect creates the veth pair and sets up its peer.
func (n Network) connect(args args, ip netip.Addr, ports []portMapping) (*current.Result, error) {
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil { // the first pod since boot, while monopod is down
		if err := n.setUp(zap.NewNop()); err != nil {
			return nil, err
		}
		if bridge, err = netlink.LinkByName(n.Bridge); err != nil {
			return nil, err
		}
	}
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	hostEnd := vethName(args.container, args.ifname)
	if err := addVeth(bridge, ns, hostEnd, args.ifname, hardwareAddr(ip)); err != nil {
		return nil, fmt.Errorf("add veth: %w", err)
	}
	if err := n.setUpPod(ns, args.ifname, ip); err != nil {
		return nil, err
	}
	if err := n.addPorts(ip, ports); err != nil {
		return nil, fmt.Errorf("host ports: %w", err)
	}
	return n.result(args, hostEnd, ip), nil
}

// vethName derives a name of at most 15 bytes from CNI's arguments.
func vethName(container, ifname string) string {
	sum := sha256.Sum256([]byte(container + "/" + ifname))
	return "mpv" + hex.EncodeToString(sum[:6])
}

// addVeth creates the pair with one end in the pod and the other up on the bridge. It
// replaces a pair of an interrupted attempt.
func addVeth(bridge netlink.Link, ns netns.NsHandle, hostEnd, ifname string, mac net.HardwareAddr) error {
	if old, err := netlink.LinkByName(hostEnd); err == nil {
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.MasterIndex, attrs.Flags = hostEnd, bridge.Attrs().MTU, bridge.Attrs().Index, net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace, veth.PeerHardwareAddr = ifname, netlink.NsFd(ns), mac
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	// A pod that connects to a Service may be its endpoint. Where the kernel passes bridged
	// packets through netfilter, they would otherwise not leave by the port that they came from.
	return netlink.LinkSetHairpin(veth, true)
}

// setUpPod works inside the pod's namespace through a socket opened there.
func (n Network) setUpPod(ns netns.NsHandle, ifname string, ip netip.Addr) error {
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("enter the pod's namespace: %w", err)
	}
	defer h.Close()
	if err := loopbackUp(h); err != nil {
		return err
	}
	link, err := h.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("find %s: %w", ifname, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ip, n.Subnet.Bits()))}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", ip, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", ifname, err)
	}
	gw := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: n.Gateway().AsSlice()}
	if err := h.RouteAdd(gw); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

func loopbackUp(h *netlink.Handle) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

func (n Network) result(args args, hostEnd string, ip netip.Addr) *current.Result {
	_, anywhere, _ := net.ParseCIDR("0.0.0.0/0")
	return &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: n.Bridge},
			{Name: hostEnd},
			{Name: args.ifname, Mac: hardwareAddr(ip).String(), Sandbox: args.netns},
		},
		IPs: []*current.IPConfig{{
			Interface: new(2), Gateway: n.Gateway().AsSlice(),
			Address: *ipNet(netip.PrefixFrom(ip, n.Subnet.Bits())),
		}},
		Routes: []*types.Route{{Dst: *anywhere, GW: n.Gateway().AsSlice()}},
	}
}

// del releases the address. It succeeds if there is none, as the protocol requires.
func del(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	if err := conf.release(args.container, args.ifname); err != nil {
		return nil, fmt.Errorf("release the address: %w", err)
	}
	return nil, nil
}

// check compares the pod's link with the address on record.
func check(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	held, err := conf.holders()
	if err != nil {
		return nil, err
	}
	for ip, h := range held {
		if h.is(args.container, args.ifname) {
			return nil, checkPod(args.netns, args.ifname, ip)
		}
	}
	return nil, fmt.Errorf("container %s has no address", args.container)
}

func checkPod(path, ifname string, ip netip.Addr) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("find %s: %w", ifname, err)
	}
	addrs, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if a.IP.Equal(ip.AsSlice()) {
			return nil
		}
	}
	return fmt.Errorf("%s lacks its address %s", ifname, ip)
}

// addLoopback is the loopback plugin, which containerd 1.6 runs in addition to the
// network's.
func addLoopback(args args) (types.Result, error) {
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	if err := loopbackUp(h); err != nil {
		return nil, err
	}
	_, home, _ := net.ParseCIDR("127.0.0.1/8")
	home.IP = net.IPv4(127, 0, 0, 1)
	return &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{{Name: args.ifname, Mac: "00:00:00:00:00:00", Sandbox: args.netns}},
		IPs:        []*current.IPConfig{{Interface: new(0), Address: *home}},
	}, nil
}
