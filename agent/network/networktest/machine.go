// Package networktest simulates machines for tests: network namespaces with a bridge and pods, which are also network
// namespaces, attached like those of package cni, and another machine outside.
package networktest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/rules"
)

// Config of a Machine.
type Config struct {
	Pods         int  // at most 250
	BrNetfilter  bool // bridged packets pass the hooks of the IP families
	NotIsolated  bool // pods reach each other at the link layer
	NotRouted    bool // pods have a route to each other that does not lead through the machine
	ServersPorts []uint16
}

// Machine is a network namespace with pods.
type Machine struct {
	T       testing.TB
	Host    *Node // the machine itself, as a client
	Pods    []*Node
	Outside *Node // another machine, to which the default route leads
	cfg     Config
	ends    []func() // cleanup functions, called in reverse order
}

// Node is a network namespace: a client or server of connections.
type Node struct {
	Name    string
	IP, IP6 netip.Addr
	ns      netns.NsHandle
}

// Names and addresses of a Machine.
const (
	Bridge   = "br"
	Table    = "monopod-test"
	gateway  = "10.88.0.1"
	gateway6 = "fd88::1"
)

// Run calls f in a new Machine.
func Run(t testing.TB, cfg Config, f func(m *Machine)) {
	t.Helper()
	Isolated(t, func(host netns.NsHandle) {
		m := &Machine{T: t, cfg: cfg,
			Host: &Node{Name: "node", IP: netip.MustParseAddr(gateway), IP6: netip.MustParseAddr(gateway6), ns: host}}
		defer func() {
			for i := range m.ends {
				m.ends[len(m.ends)-1-i]()
			}
		}()
		if err := m.setUp(); err != nil {
			t.Error(err)
			return
		}
		f(m)
	})
}

// Isolated calls f on a thread in a new network namespace. The network of the real machine does not change.
func Isolated(t testing.TB, f func(ns netns.NsHandle)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
		host, err := netns.New()
		if err != nil {
			t.Error(err)
			return
		}
		defer host.Close()
		f(host)
	}()
	<-done
}

func (m *Machine) setUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: named(Bridge)}
	bridge.HardwareAddr = net.HardwareAddr{0x0a, 0x58, 10, 88, 0, 1}
	errs := []error{netlink.LinkSetUp(lo), netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)}
	for _, text := range []string{gateway + "/24", gateway6 + "/64"} {
		errs = append(errs, netlink.AddrAdd(bridge, address(text)))
	}
	br := "0"
	if m.cfg.BrNetfilter {
		br = "1"
	}
	for file, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		"bridge/bridge-nf-call-iptables": br, "bridge/bridge-nf-call-ip6tables": br,
	} {
		err := os.WriteFile("/proc/sys/net/"+file, []byte(value), 0o644)
		if !m.cfg.BrNetfilter && errors.Is(err, os.ErrNotExist) {
			continue // the module is not loaded
		}
		errs = append(errs, err)
	}
	if !m.cfg.NotIsolated {
		errs = append(errs, rules.SetUp(Table, bridge))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.uplink(); err != nil {
		return err
	}
	for range m.cfg.Pods {
		if _, err := m.AddPod(); err != nil {
			return err
		}
	}
	return nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

func address(text string) *netlink.Addr {
	addr, err := netlink.ParseAddr(text)
	if err != nil {
		panic(err)
	}
	addr.Flags = unix.IFA_F_NODAD
	return addr
}

// Cleanup registers f to be called at the end of the Machine, before functions that were registered earlier.
func (m *Machine) Cleanup(f func()) { m.ends = append(m.ends, f) }

// AddPod attaches a further pod to the bridge.
func (m *Machine) AddPod() (*Node, error) {
	n := len(m.Pods) + 2
	p := &Node{
		Name: fmt.Sprintf("pod%d", len(m.Pods)),
		IP:   netip.AddrFrom4([4]byte{10, 88, 0, byte(n)}), IP6: netip.MustParseAddr(fmt.Sprintf("fd88::%x", n)),
	}
	m.Pods = append(m.Pods, p)
	bits, bits6 := 32, 128
	if m.cfg.NotRouted {
		bits, bits6 = 24, 64
	}
	return p, m.attach(p, fmt.Sprintf("veth%d", n), Bridge, gateway, gateway6, bits, bits6)
}

// AddNetwork adds a bridge with the addresses .1 and ::1 of two subnets (/24 and /64), and attaches a pod with .2 and
// ::2 to it.
func (m *Machine) AddNetwork(name string, subnet, subnet6 netip.Prefix) (*Node, error) {
	gw, gw6 := subnet.Addr().Next(), subnet6.Addr().Next()
	bridge := &netlink.Bridge{LinkAttrs: named(name)}
	err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge),
		netlink.AddrAdd(bridge, address(netip.PrefixFrom(gw, 24).String())),
		netlink.AddrAdd(bridge, address(netip.PrefixFrom(gw6, 64).String())))
	p := &Node{Name: name + "-pod", IP: gw.Next(), IP6: gw6.Next()}
	if err == nil {
		err = m.attach(p, name+"-veth", name, gw.String(), gw6.String(), 24, 64)
	}
	return p, err
}

func (m *Machine) uplink() error {
	p := &Node{Name: "outside", IP: netip.MustParseAddr("203.0.113.2"), IP6: netip.MustParseAddr("2001:db8::2")}
	m.Outside = p
	if err := m.attach(p, "uplink", "", "203.0.113.1", "2001:db8::1", 24, 64); err != nil {
		return err
	}
	link, err := netlink.LinkByName("uplink")
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, address("203.0.113.1/24")), netlink.AddrAdd(link, address("2001:db8::1/64")),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.IP.AsSlice()}),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.IP6.AsSlice()}))
}

func (m *Machine) attach(p *Node, link, bridge, gw, gw6 string, bits, bits6 int) error {
	host, err := netns.Get()
	if err != nil {
		return err
	}
	defer host.Close()
	if p.ns, err = netns.New(); err != nil { // New also enters the namespace
		return err
	}
	m.ends = append(m.ends, func() { p.ns.Close() })
	if err := netns.Set(host); err != nil {
		return err
	}
	veth := netlink.NewVeth(named(link))
	veth.Flags = net.FlagUp
	if bridge != "" {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		veth.MasterIndex, veth.Group = master.Attrs().Index, rules.Group(bridge)
	}
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(p.ns)
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if bridge != "" {
		if err := netlink.LinkSetHairpin(veth, true); err != nil {
			return err
		}
	}
	h, err := netlink.NewHandleAt(p.ns)
	if err != nil {
		return err
	}
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return err
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	errs := []error{
		h.LinkSetUp(lo),
		h.AddrAdd(eth0, address(netip.PrefixFrom(p.IP, bits).String())),
		h.AddrAdd(eth0, address(netip.PrefixFrom(p.IP6, bits6).String())),
		h.LinkSetUp(eth0),
	}
	for _, via := range []string{gw, gw6} {
		ip := net.ParseIP(via)
		length := 128
		if ip.To4() != nil {
			ip, length = ip.To4(), 32
		}
		on := &net.IPNet{IP: ip, Mask: net.CIDRMask(length, length)}
		errs = append(errs, h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: on, Scope: netlink.SCOPE_LINK}),
			h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: ip}))
	}
	return errors.Join(errs...)
}

// Inside calls f in the node's network namespace.
func (n *Node) Inside(f func() error) error { return Inside(n.ns, f) }

// Inside calls f on a thread in a network namespace.
func Inside(ns netns.NsHandle, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}
