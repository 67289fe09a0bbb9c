package cni

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
	"monopod/agent/network/cni/rtnetlink"
	"monopod/agent/network/cni/shape"
	"monopod/agent/network/cni/subnets"
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
	host, err := rtnetlink.Open()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	bridge, err := host.Link(n.Bridge)
	if err != nil { // the first pod since boot, while monopod is down
		if err := n.setUp(zap.NewNop()); err != nil {
			return nil, err
		}
		if bridge, err = host.Link(n.Bridge); err != nil {
			return nil, err
		}
	}
	ns, err := netns.GetFromPath(args.netns)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", args.netns, err)
	}
	defer ns.Close()
	hostEnd := vethName(args.container, args.ifname)
	pair := veth{bridge: bridge, group: isolation.Group(n.Bridge), host: hostEnd, pod: args.ifname, ns: ns, mac: hardwareAddr(ips)}
	if err := pair.add(host); err != nil {
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

// veth is a pair of links: one end up on the bridge, the other in the pod.
type veth struct {
	bridge    rtnetlink.Link
	group     uint32 // of the host's end
	host, pod string // names
	ns        netns.NsHandle
	mac       net.HardwareAddr // of the pod's end
}

// add creates the pair. It replaces a pair of an interrupted attempt.
func (v veth) add(socket *rtnetlink.Socket) error {
	errs, err := socket.Do(v.create(), v.up(true))
	if err != nil {
		return err
	}
	if errors.Is(errs[0], unix.EEXIST) {
		if derr := socket.Remove(v.host); derr != nil {
			return fmt.Errorf("%w, and removing %s: %w", errs[0], v.host, derr)
		}
		if errs, err = socket.Do(v.create(), v.up(true)); err != nil {
			return err
		}
	}
	if errs[0] == nil && errors.Is(errs[1], unix.EAFNOSUPPORT) { // without IPv6 there are no such addresses
		return socket.All(v.up(false))
	}
	return cmp.Or(errs[0], errs[1])
}

// create is the request for a pair whose host end is a port of the bridge, and still down. Each end uses one queue, of
// which the kernel would otherwise make one for each processor, and then wait until nothing uses the others.
func (v veth) create() *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	mtu, one := nl.Uint32Attr(uint32(v.bridge.MTU)), nl.Uint32Attr(1)
	for _, attribute := range []*nl.RtAttr{
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(v.host)), nl.NewRtAttr(unix.IFLA_MTU, mtu),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(v.bridge.Index))), nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(v.group)),
		nl.NewRtAttr(unix.IFLA_NUM_TX_QUEUES, one), nl.NewRtAttr(unix.IFLA_NUM_RX_QUEUES, one),
	} {
		request.AddData(attribute)
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	peer.AddChild(nl.NewIfInfomsg(unix.AF_UNSPEC))
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(v.pod))
	peer.AddRtAttr(unix.IFLA_MTU, mtu)
	peer.AddRtAttr(unix.IFLA_ADDRESS, v.mac)
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(v.ns)))
	peer.AddRtAttr(unix.IFLA_NUM_TX_QUEUES, one)
	peer.AddRtAttr(unix.IFLA_NUM_RX_QUEUES, one)
	request.AddData(info)
	return request
}

// up is the request that sets the port of a bridge up, in hairpin mode: a pod that connects to a Service may be its
// endpoint. Where the kernel passes bridged packets through netfilter, they would otherwise not leave by the port that
// they came from. unaddressed: the port itself gets no link-local IPv6 address, of which bridges make no use.
func (v veth) up(unaddressed bool) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, 0)
	base := nl.NewIfInfomsg(unix.AF_UNSPEC)
	base.Flags, base.Change = unix.IFF_UP, unix.IFF_UP
	request.AddData(base)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(v.host)))
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

// loopback is the index of the loopback device in each network namespace.
const loopback = 1

// setUpPod works inside the pod's namespace through a socket opened there.
func (n Network) setUpPod(ns netns.NsHandle, ifname string, ips []netip.Addr) error {
	pod, err := rtnetlink.OpenAt(ns)
	if err != nil {
		return fmt.Errorf("enter the pod's namespace: %w", err)
	}
	defer pod.Close()
	link, err := pod.LinkAfter(ifname, rtnetlink.Up(loopback))
	if err != nil {
		return fmt.Errorf("set lo up and find %s: %w", ifname, err)
	}
	if slices.ContainsFunc(ips, netip.Addr.Is6) {
		if err := rtnetlink.Inside(ns, func() error { return sysctls(ipv6Sysctls(ifname)) }); err != nil {
			return fmt.Errorf("set up IPv6 of %s: %w", ifname, err)
		}
	}
	var requests []*nl.NetlinkRequest
	for _, ip := range ips { // without a route to the subnet: everything goes through the host, see isolation
		requests = append(requests, rtnetlink.Address(link.Index, ip))
	}
	requests = append(requests, rtnetlink.Up(link.Index))
	for _, gateway := range n.Gateways() {
		requests = append(requests, rtnetlink.Routes(link.Index, gateway)...)
	}
	if err := pod.All(requests...); err != nil {
		return fmt.Errorf("set up %s with %v: %w", ifname, ips, err)
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
	if err := args.conf.check(); err != nil {
		return nil, err
	}
	if err := args.conf.release(args.container, args.ifname); err != nil {
		return nil, fmt.Errorf("release the addresses: %w", err)
	}
	return nil, shape.Remove(vethName(args.container, args.ifname))
}

// check compares the pod's link with the addresses on record.
func check(args args) (types.Result, error) {
	if err := args.conf.check(); err != nil {
		return nil, err
	}
	held, err := args.conf.pool().Holders()
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
	pod, err := rtnetlink.OpenAt(ns)
	if err != nil {
		return nil, err
	}
	defer pod.Close()
	if err := pod.All(rtnetlink.Up(loopback)); err != nil {
		return nil, fmt.Errorf("set lo up: %w", err)
	}
	_, home, _ := net.ParseCIDR("127.0.0.1/8")
	home.IP = net.IPv4(127, 0, 0, 1)
	return &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{{Name: args.ifname, Mac: "00:00:00:00:00:00", Sandbox: args.netns}},
		IPs:        []*current.IPConfig{{Interface: new(0), Address: *home}},
	}, nil
}
