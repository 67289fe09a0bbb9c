package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
)

func add(args args) (types.Result, error) {
	conf := args.conf
	if err := conf.check(); err != nil {
		return nil, err
	}
	boot, err := ipam.BootID()
	if err != nil {
		return nil, err
	}
	ports := conf.RuntimeConfig.PortMappings
	if err := conf.RuntimeConfig.Bandwidth.Check(); err != nil {
		return nil, err
	}
	ips, err := conf.pool().Allocate(ipam.Holder{
		Container: args.container, IfName: args.ifname, Netns: args.netns, Boot: boot,
		Ports: len(ports) > 0, HostPorts: ports, Pod: args.pod,
	})
	if err != nil {
		return nil, fmt.Errorf("allocate an address: %w", err)
	}
	if args.admit != nil {
		err = args.admit(ips)
	}
	var result *current.Result
	if err == nil {
		result, err = conf.connect(args, ips)
	}
	if err != nil {
		return nil, errors.Join(err, conf.release(args.container, args.ifname),
			removeIFB(vethName(args.container, args.ifname)))
	}
	return result, nil
}

// connect creates the veth pair and sets up its peer.
func (n pluginConf) connect(args args, ips []netip.Addr) (*current.Result, error) {
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil { // this is the first pod since boot, and monopod does not run
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
	if err := addVeth(bridge, hostEnd, args.ifname, ns, hardwareAddr(ips)); err != nil {
		return nil, fmt.Errorf("add veth: %w", err)
	}
	if err := n.limitBandwidth(hostEnd); err != nil {
		return nil, err
	}
	if err := inside(ns, func() error { return n.setUpPod(args.ifname, ips) }); err != nil {
		return nil, fmt.Errorf("set up %s with %v: %w", args.ifname, ips, err)
	}
	if err := n.rules().AddPorts(ips, n.RuntimeConfig.PortMappings); err != nil {
		return nil, fmt.Errorf("host ports: %w", err)
	}
	return n.result(args, hostEnd, ips), nil
}

// limitBandwidth limits the bandwidth of the pod behind the link.
func (n pluginConf) limitBandwidth(hostEnd string) error {
	if n.RuntimeConfig.Bandwidth == (Bandwidth{}) {
		return nil
	}
	link, err := netlink.LinkByName(hostEnd)
	if err != nil {
		return err
	}
	if err := removeIFB(hostEnd); err != nil { // of an interrupted attempt
		return err
	}
	return n.RuntimeConfig.Bandwidth.Apply(link, n.Bridge)
}

// vethName derives a name of at most 15 bytes from CNI's arguments.
func vethName(container, ifname string) string {
	sum := sha256.Sum256([]byte(container + "/" + ifname))
	return "mpv" + hex.EncodeToString(sum[:6])
}

// addVeth creates a veth pair, whose one end is a port of the bridge, and the other is in the pod's namespace. It
// replaces the pair of an interrupted attempt.
func addVeth(bridge netlink.Link, hostEnd, ifname string, ns netns.NsHandle, mac net.HardwareAddr) error {
	pair := &netlink.Veth{
		LinkAttrs: netlink.NewLinkAttrs(), PeerName: ifname, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(ns),
	}
	pair.Name, pair.MTU = hostEnd, bridge.Attrs().MTU
	pair.MasterIndex, pair.Group = bridge.Attrs().Index, rules.Group(bridge.Attrs().Name)
	pair.NumTxQueues, pair.NumRxQueues = 1, 1 // by default, one for each processor
	err := netlink.LinkAdd(pair)
	if errors.Is(err, unix.EEXIST) {
		if derr := netlink.LinkDel(pair); derr != nil {
			return fmt.Errorf("%w, and removing %s: %w", err, hostEnd, derr)
		}
		err = netlink.LinkAdd(pair)
	}
	if err != nil {
		return err
	}
	// A pod that connects to a Service may be its endpoint. With br_netfilter, the packets would otherwise not leave by
	// the port by which they entered.
	if err := netlink.LinkSetHairpin(pair, true); err != nil {
		return err
	}
	return netlink.LinkSetUp(pair)
}

// inside calls f on a thread in the namespace. If the thread cannot return to its own, it stays locked and is not
// reused.
func inside(ns netns.NsHandle, f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := netns.Set(ns); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	ferr := f()
	if err := netns.Set(home); err != nil {
		return errors.Join(ferr, fmt.Errorf("return to the host's network namespace: %w", err))
	}
	runtime.UnlockOSThread()
	return ferr
}

// setUpPod sets up the link, addresses and routes; it runs inside the pod's namespace.
func (n Network) setUpPod(ifname string, ips []netip.Addr) error {
	if err := LoopbackUp(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(ifname)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ips, netip.Addr.Is6) {
		if err := sysctls(ipv6Sysctls(ifname)); err != nil {
			return err
		}
	}
	for _, ip := range ips { // without a route to the subnet: the host routes all packets, see rules/isolation.go
		if err := netlink.AddrAdd(link, address(netip.PrefixFrom(ip, ip.BitLen()))); err != nil {
			return fmt.Errorf("add address %s: %w", ip, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	index := link.Attrs().Index
	for _, gateway := range n.Gateways() {
		direct := &netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK,
			Dst: ipam.IPNet(netip.PrefixFrom(gateway, gateway.BitLen()))}
		others := &netlink.Route{LinkIndex: index, Gw: gateway.AsSlice()}
		if err := errors.Join(netlink.RouteAdd(direct), netlink.RouteAdd(others)); err != nil {
			return fmt.Errorf("add routes through %s: %w", gateway, err)
		}
	}
	return nil
}

// LoopbackUp sets up the loopback device of the thread's network namespace.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}

func (n Network) result(args args, hostEnd string, ips []netip.Addr) *current.Result {
	out := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: n.Bridge},
			{Name: hostEnd},
			{Name: args.ifname, Mac: hardwareAddr(ips).String(), Sandbox: args.netns},
		},
	}
	for i, subnet := range n.Subnets {
		gw := ipam.Gateway(subnet).AsSlice()
		address := ipam.IPNet(netip.PrefixFrom(ips[i], ips[i].BitLen()))
		defaultRoute := ipam.IPNet(netip.PrefixFrom(subnet.Addr(), 0).Masked())
		out.IPs = append(out.IPs, &current.IPConfig{Interface: new(2), Gateway: gw, Address: *address})
		out.Routes = append(out.Routes, &types.Route{Dst: *defaultRoute, GW: gw})
	}
	return out
}

// del releases the addresses. It succeeds if there are none, as the protocol requires.
func del(args args) (types.Result, error) {
	if err := args.conf.check(); err != nil {
		return nil, err
	}
	if err := args.conf.release(args.container, args.ifname); err != nil {
		return nil, fmt.Errorf("release the addresses: %w", err)
	}
	return nil, removeIFB(vethName(args.container, args.ifname))
}

// check compares the addresses of the pod's link with the allocated ones.
func check(args args) (types.Result, error) {
	if err := args.conf.check(); err != nil {
		return nil, err
	}
	holders, err := args.conf.pool().Holders()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for ip, h := range holders {
		if h.Is(args.container, args.ifname) {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("container %s has no address", args.container)
	}
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	return nil, inside(ns, func() error {
		link, err := netlink.LinkByName(args.ifname)
		if err != nil {
			return fmt.Errorf("find %s: %w", args.ifname, err)
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, ip := range ips {
			if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(ip.AsSlice()) }) {
				return fmt.Errorf("%s lacks its address %s", args.ifname, ip)
			}
		}
		return nil
	})
}

// addLoopback is the loopback plugin, which containerd 1.6 runs in addition to the network's.
func addLoopback(args args) (types.Result, error) {
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	if err := inside(ns, LoopbackUp); err != nil {
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
