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
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/isolation"
	"monopod/agent/network/cni/shape"
	"monopod/agent/network/cni/subnets"
)

func add(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	conf.kernel, conf.held = args.kernel, args.held
	boot, err := ipam.BootID()
	if err != nil {
		return nil, err
	}
	ports := conf.RuntimeConfig.PortMappings
	if err := conf.RuntimeConfig.Bandwidth.Check(); err != nil {
		return nil, err
	}
	ips, err := conf.pool().Allocate(ipam.Holder{Container: args.container, IfName: args.ifname, Netns: args.netns, Boot: boot, Ports: len(ports) > 0, HostPorts: ports, Pod: args.pod})
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
		return nil, errors.Join(err, conf.release(args.container, args.ifname), shape.Remove(vethName(args.container, args.ifname)))
	}
	return result, nil
}

// connect creates the veth pair and sets up its peer.
func (n pluginConf) connect(args args, ips []netip.Addr) (*current.Result, error) {
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
	if err := addVeth(bridge, ns, hostEnd, args.ifname, hardwareAddr(ips)); err != nil {
		return nil, fmt.Errorf("add veth: %w", err)
	}
	if err := n.limit(hostEnd); err != nil {
		return nil, err
	}
	if err := n.setUpPod(ns, args.ifname, ips); err != nil {
		return nil, err
	}
	if err := n.rules().AddPorts(ips, n.RuntimeConfig.PortMappings); err != nil {
		return nil, fmt.Errorf("host ports: %w", err)
	}
	return n.result(args, hostEnd, ips), nil
}

// limit limits the bandwidth of the pod behind the link.
func (n pluginConf) limit(hostEnd string) error {
	if n.RuntimeConfig.Bandwidth == (shape.Bandwidth{}) {
		return nil
	}
	link, err := netlink.LinkByName(hostEnd)
	if err != nil {
		return err
	}
	if err := shape.Remove(hostEnd); err != nil { // of an interrupted attempt
		return err
	}
	return n.RuntimeConfig.Bandwidth.Apply(link, n.Bridge)
}

// vethName derives a name of at most 15 bytes from CNI's arguments.
func vethName(container, ifname string) string {
	sum := sha256.Sum256([]byte(container + "/" + ifname))
	return "mpv" + hex.EncodeToString(sum[:6])
}

// addVeth creates the pair with one end in the pod and the other up on the bridge. It
// replaces a pair of an interrupted attempt.
func addVeth(bridge netlink.Link, ns netns.NsHandle, hostEnd, ifname string, mac net.HardwareAddr) error {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer socket.Close()
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	send := func(request *nl.NetlinkRequest) error {
		request.Sockets = sockets
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}
	err = send(newVeth(bridge.Attrs(), ns, hostEnd, ifname, mac))
	if errors.Is(err, unix.EEXIST) {
		if derr := deleteLink(hostEnd); derr != nil {
			return fmt.Errorf("%w, and removing %s: %w", err, hostEnd, derr)
		}
		err = send(newVeth(bridge.Attrs(), ns, hostEnd, ifname, mac))
	}
	if err != nil {
		return err
	}
	err = send(portUp(hostEnd, true))
	if errors.Is(err, unix.EAFNOSUPPORT) { // without IPv6 there are no such addresses
		err = send(portUp(hostEnd, false))
	}
	return err
}

// deleteLink succeeds if there is no such link.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if errors.As(err, &netlink.LinkNotFoundError{}) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// newVeth is the request for a pair whose host end is a port of the bridge, and still down.
func newVeth(bridge *netlink.LinkAttrs, ns netns.NsHandle, hostEnd, ifname string, mac net.HardwareAddr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	mtu := nl.Uint32Attr(uint32(bridge.MTU))
	for _, attribute := range []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(hostEnd)), nl.NewRtAttr(unix.IFLA_MTU, mtu),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(bridge.Index))), nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(isolation.Group(bridge.Name))),
	} {
		request.AddData(attribute)
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	peer.AddChild(nl.NewIfInfomsg(unix.AF_UNSPEC))
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(ifname))
	peer.AddRtAttr(unix.IFLA_MTU, mtu)
	peer.AddRtAttr(unix.IFLA_ADDRESS, mac)
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(ns)))
	request.AddData(info)
	return request
}

// portUp is the request that sets the port of a bridge up, in hairpin mode: a pod that connects to a Service may be its
// endpoint. Where the kernel passes bridged packets through netfilter, they would otherwise not leave by the port that
// they came from. unaddressed: the port itself gets no link-local IPv6 address, of which bridges make no use.
func portUp(hostEnd string, unaddressed bool) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	base := nl.NewIfInfomsg(unix.AF_UNSPEC)
	base.Flags, base.Change = unix.IFF_UP, unix.IFF_UP
	request.AddData(base)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(hostEnd)))
	if unaddressed {
		const mode, none = 8, 1 // IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE
		families := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
		families.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(mode, nl.Uint8Attr(none))
		request.AddData(families)
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_SLAVE_KIND, nl.NonZeroTerminated("bridge"))
	info.AddRtAttr(unix.IFLA_INFO_SLAVE_DATA, nil).AddRtAttr(nl.IFLA_BRPORT_MODE, nl.Uint8Attr(1))
	request.AddData(info)
	return request
}

// setUpPod works inside the pod's namespace through a socket opened there.
func (n Network) setUpPod(ns netns.NsHandle, ifname string, ips []netip.Addr) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
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
	if slices.ContainsFunc(ips, netip.Addr.Is6) {
		if err := inside(ns, func() error { return sysctls(ipv6Sysctls(ifname)) }); err != nil {
			return fmt.Errorf("set up IPv6 of %s: %w", ifname, err)
		}
	}
	for _, ip := range ips { // without a route to the subnet: everything goes through the host, see isolation
		if err := h.AddrAdd(link, address(ip, netip.PrefixFrom(ip, ip.BitLen()))); err != nil {
			return fmt.Errorf("add address %s: %w", ip, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", ifname, err)
	}
	for _, gw := range n.Gateways() {
		if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.PrefixFrom(gw, gw.BitLen())), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("add route to %s: %w", gw, err)
		}
		if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}); err != nil {
			return fmt.Errorf("add default route to %s: %w", gw, err)
		}
	}
	return nil
}

// inside calls f on a thread in the namespace. If the thread cannot return from there,
// it is not reused.
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
		gw := subnets.Gateway(subnet).AsSlice()
		anywhere := ipNet(netip.PrefixFrom(subnet.Addr(), 0).Masked())
		out.IPs = append(out.IPs, &current.IPConfig{Interface: new(2), Gateway: gw, Address: *ipNet(netip.PrefixFrom(ips[i], ips[i].BitLen()))})
		out.Routes = append(out.Routes, &types.Route{Dst: *anywhere, GW: gw})
	}
	return out
}

// del releases the addresses. It succeeds if there is none, as the protocol requires.
func del(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	conf.kernel, conf.held = args.kernel, args.held
	if err := conf.release(args.container, args.ifname); err != nil {
		return nil, fmt.Errorf("release the addresses: %w", err)
	}
	return nil, shape.Remove(vethName(args.container, args.ifname))
}

// check compares the pod's link with the addresses on record.
func check(args args) (types.Result, error) {
	conf, err := parseConf(args.config)
	if err != nil {
		return nil, err
	}
	held, err := conf.pool().Holders()
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	for ip, h := range held {
		if h.Is(args.container, args.ifname) {
			ips = append(ips, ip)
		}
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("container %s has no address", args.container)
	}
	return nil, checkPod(args.netns, args.ifname, ips)
}

func checkPod(path, ifname string, ips []netip.Addr) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(ifname)
	if err != nil {
		return fmt.Errorf("find %s: %w", ifname, err)
	}
	addrs, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(ip.AsSlice()) }) {
			return fmt.Errorf("%s lacks its address %s", ifname, ip)
		}
	}
	return nil
}

// addLoopback is the loopback plugin, which containerd 1.6 runs in addition to the
// network's.
func addLoopback(args args) (types.Result, error) {
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
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
