package nodes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni"
	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
	"monopod/agent/network/networktest"
)

// computer is a network namespace as a node, with one pod, which is a network namespace, too.
type computer struct {
	t      *testing.T
	ns     netns.NsHandle
	pod    netns.NsHandle
	kernel *Kernel
	facts  facts
	podIPs []netip.Addr
	says   netip.AddrPort // as the endpoint of WireGuard; zero: the right one
}

// in calls f on a thread in a network namespace.
func in(t *testing.T, ns netns.NsHandle, f func() error) {
	t.Helper()
	if err := networktest.Inside(ns, f); err != nil {
		t.Error(err)
	}
}

// newNamespace returns a new network namespace, and returns to that of the thread.
func newNamespace(t *testing.T) netns.NsHandle {
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	ns, err := netns.New()
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { ns.Close() })
	if err := netns.Set(home); err != nil {
		t.Error(err)
	}
	return ns
}

func linkUp(name string, addresses ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, p := range addresses {
		a := &netlink.Addr{IPNet: ipam.IPNet(p)}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("add %s to %s: %w", p, name, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// lan connects n computers to each other: by a switch, or by a router in the namespace of the thread.
func lan(t *testing.T, n int, routed bool) []*computer {
	attrs := named("lan")
	errs := []error{netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}), linkUp("lan"), linkUp("lo"),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644),
		os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0o644)}
	var out []*computer
	for i := range n {
		c := &computer{t: t, ns: newNamespace(t), pod: newNamespace(t)}
		name := fmt.Sprint("port", i)
		port := netlink.NewVeth(named(name))
		port.PeerName, port.PeerNamespace = "eth0", netlink.NsFd(c.ns)
		errs = append(errs, netlink.LinkAdd(port))
		ip4, ip6 := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i+1)), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i+1))
		gateway4, gateway6 := netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("2001:db8::ff")
		if routed {
			gateway4 = netip.MustParseAddr(fmt.Sprintf("198.51.%d.1", i))
			gateway6 = netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::1", i))
			ip4, ip6 = gateway4.Next(), gateway6.Next()
			errs = append(errs, linkUp(name, netip.PrefixFrom(gateway4, 24), netip.PrefixFrom(gateway6, 64)))
		} else {
			link, err := netlink.LinkByName("lan")
			errs = append(errs, err, linkUp(name))
			if err == nil {
				errs = append(errs, netlink.LinkSetMaster(port, link))
			}
		}
		in(t, c.ns, func() error {
			err := errors.Join(linkUp("lo"), linkUp("eth0", netip.PrefixFrom(ip4, 24), netip.PrefixFrom(ip6, 64)))
			for _, gw := range []netip.Addr{gateway4, gateway6} {
				err = errors.Join(err, netlink.RouteAdd(&netlink.Route{Gw: gw.AsSlice()}))
			}
			for _, conf := range []string{"all", "eth0", "default"} { // the strictest setting
				err = errors.Join(err, os.WriteFile("/proc/sys/net/ipv4/conf/"+conf+"/rp_filter", []byte("1"), 0o644))
			}
			return errors.Join(err, c.setUp(i))
		})
		c.facts.ips = []netip.Addr{ip4, ip6}
		out = append(out, c)
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	return out
}

// setUp sets up the pod network and the pod, in the namespace of the computer.
func (c *computer) setUp(i int) error {
	name := fmt.Sprint("node", i)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	n, err := cni.Prepare(cni.Config{
		Dir: c.t.TempDir(), ID: "test", Executable: exe, Log: zaptest.NewLogger(c.t),
		Subnets: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.88.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd88:0:0:%d::/64", i)),
		},
	})
	if err != nil {
		return err
	}
	c.kernel = &Kernel{Network: n, KeyFile: filepath.Join(c.t.TempDir(), "wireguard.key"), Port: 51820}
	c.facts = facts{name: name, created: int64(i), ranges: n.Subnets, silent: true}
	bridge, err := netlink.LinkByName(n.Bridge)
	if err != nil {
		return err
	}
	veth := netlink.NewVeth(named("pod"))
	veth.MTU, veth.MasterIndex, veth.Group = bridge.Attrs().MTU, bridge.Attrs().Index, rules.Group(n.Bridge)
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(c.pod)
	if err := errors.Join(netlink.LinkAdd(veth), linkUp("pod")); err != nil {
		return err
	}
	for _, gw := range n.Gateways() {
		c.podIPs = append(c.podIPs, gw.Next())
	}
	in(c.t, c.pod, func() error {
		err := errors.Join(linkUp("lo"),
			linkUp("eth0", netip.PrefixFrom(c.podIPs[0], 32), netip.PrefixFrom(c.podIPs[1], 128)))
		link, linkErr := netlink.LinkByName("eth0")
		if err := errors.Join(err, linkErr); err != nil {
			return err
		}
		for _, gw := range n.Gateways() {
			index := link.Attrs().Index
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK,
				Dst: ipam.IPNet(netip.PrefixFrom(gw, gw.BitLen()))}),
				netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gw.AsSlice()}))
		}
		return err
	})
	c.serve()
	return nil
}

// serve answers connections to the pod at port 80 with the client's address, and then sends back what it receives.
func (c *computer) serve() {
	in(c.t, c.pod, func() error {
		l, err := net.Listen("tcp", ":80")
		if err != nil {
			return err
		}
		var group sync.WaitGroup
		group.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				group.Go(func() {
					defer conn.Close()
					at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
					fmt.Fprintln(conn, at.Addr().Unmap())
					_, _ = io.Copy(conn, conn)
				})
			}
		})
		c.t.Cleanup(func() { l.Close(); group.Wait() })
		return nil
	})
}

// secret is what clients send. It is large, so that packets have the size of the MTU.
var secret = strings.Repeat("plain text of pods ", 1000)

// ask connects to a pod, sends and receives the secret, and returns the address that the pod sees.
func ask(t *testing.T, from netns.NsHandle, to netip.Addr) (client string) {
	return askPort(t, from, netip.AddrPortFrom(to, 80))
}

func askPort(t *testing.T, from netns.NsHandle, to netip.AddrPort) (client string) {
	in(t, from, func() error {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", to.String())
		if err != nil {
			client = err.Error()
			return nil
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		var sent error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, sent = io.WriteString(conn, secret)
			sent = errors.Join(sent, conn.(*net.TCPConn).CloseWrite())
		}()
		data, err := io.ReadAll(conn)
		<-done
		line, echo, _ := strings.Cut(string(data), "\n")
		client = line
		if err := errors.Join(err, sent); err != nil || echo != secret {
			client = fmt.Sprintf("%s, %d bytes came back: %v", line, len(echo), err)
		}
		return nil
	})
	return client
}

// ways brings all computers to what they say about each other, as the reconciles of their processes do.
func ways(t *testing.T, all []*computer, mode Mode, noWireGuard bool) {
	t.Helper()
	for range 3 { // what one says changes what others offer
		said := make([]facts, len(all))
		for i, c := range all {
			in(t, c.ns, func() (err error) {
				own := &c.facts
				if mode == Auto || mode == ModeRoutes {
					if own.subnets, err = c.kernel.Subnets(own.ips); err != nil {
						return err
					}
				}
				wireGuard, vxlan := tunnels(mode, *own, others(all, i), noWireGuard)
				if wireGuard {
					if own.key, err = c.kernel.StartWireGuard(); err != nil {
						return err
					}
					if own.endpoint = c.says; !c.says.IsValid() {
						own.endpoint = netip.AddrPortFrom(own.underlay(), c.kernel.Port)
					}
				}
				if vxlan {
					own.mac, err = c.kernel.StartVXLAN(own.underlay())
				}
				return err
			})
			c.facts.silent = false
			said[i] = c.facts
		}
		for i, c := range all {
			plan, unreachable := newPlan(said[i], others(all, i))
			in(t, c.ns, func() error { return c.kernel.Apply(plan, c.facts.key != [32]byte{}, c.facts.mac != "") })
			if len(unreachable) > 0 {
				t.Logf("%s does not reach %v", c.facts.name, unreachable)
			}
		}
	}
}

func others(all []*computer, i int) (out []facts) {
	for j, c := range all {
		if j != i {
			out = append(out, c.facts)
		}
	}
	return out
}

// capture returns a function that ends a capture of all packets in the namespace of the thread, and returns a
// description of each kind: plain packets of pods, and the UDP ports of others.
func capture(t *testing.T) (end func() []string) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Error(err)
		return func() []string { return nil }
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	return func() []string {
		defer unix.Close(fd)
		seen := map[string]bool{}
		buf := make([]byte, 1<<16)
		for {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			seen[describe(buf[:n])] = true
		}
		delete(seen, "")
		return slices.Sorted(func(yield func(string) bool) {
			for kind := range seen {
				if !yield(kind) {
					return
				}
			}
		})
	}
}

func htons(n uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)) }

func describe(p []byte) string {
	if strings.Contains(string(p), "plain text") && p[0]>>4 == 4 && p[9] == unix.IPPROTO_UDP {
		return fmt.Sprint("readable in UDP to port ", binary.BigEndian.Uint16(p[22:]))
	}
	if strings.Contains(string(p), "plain text") {
		src, dst := p[12:16], p[16:20]
		if p[0]>>4 == 6 {
			src, dst = p[8:24], p[24:40]
		}
		from, _ := netip.AddrFromSlice(src)
		to, _ := netip.AddrFromSlice(dst)
		return fmt.Sprintf("readable from %s to %s", from, to)
	}
	if len(p) > 28 && p[0]>>4 == 4 && p[9] == unix.IPPROTO_UDP {
		return fmt.Sprint("UDP to port ", binary.BigEndian.Uint16(p[22:]))
	}
	return ""
}

// expectReachable tests that the pods and hosts of all computers reach the pods of all others, which see the addresses
// of pods.
func expectReachable(t *testing.T, all []*computer) {
	t.Helper()
	for i, a := range all {
		for j, b := range all {
			if i == j {
				continue
			}
			for f := range b.podIPs {
				if got := ask(t, a.pod, b.podIPs[f]); got != a.podIPs[f].String() {
					t.Errorf("the pod of %s connects to %s, which sees %q, want %s", a.facts.name, b.podIPs[f], got, a.podIPs[f])
				}
				if got, want := ask(t, a.ns, b.podIPs[f]), a.kernel.Network.Gateways()[f].String(); got != want {
					t.Errorf("the host of %s connects to %s, which sees %q, want %s", a.facts.name, b.podIPs[f], got, want)
				}
			}
		}
	}
}

func expectPackets(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("between the machines were:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 3, false)
		ways(t, all, Auto, false)
		end := capture(t)
		if got := ask(t, all[0].pod, all[1].podIPs[0]); got != "10.88.0.2" {
			t.Errorf("the server sees %q", got)
		}
		expectPackets(t, end(), "readable from 10.88.0.2 to 10.88.1.2", "readable from 10.88.1.2 to 10.88.0.2")
		expectReachable(t, all)
		for _, c := range all {
			in(t, c.ns, func() error {
				for _, name := range []string{c.kernel.Network.WireGuardLink(), c.kernel.Network.VXLANLink()} {
					if _, err := netlink.LinkByName(name); err == nil {
						t.Errorf("%s has the link %s, although it needs no tunnel", c.facts.name, name)
					}
				}
				return nil
			})
			if _, err := os.Stat(c.kernel.KeyFile); err == nil {
				t.Errorf("%s has a key, although it needs no tunnel", c.facts.name)
			}
		}
		// A node that is deleted loses its routes; the others keep theirs.
		rest := all[:2]
		ways(t, rest, Auto, false)
		in(t, all[0].ns, func() error {
			routes, err := all[0].kernel.Network.RoutesToOthers()
			if len(routes) != 2 {
				t.Errorf("%d routes, want 2", len(routes))
			}
			return err
		})
		expectReachable(t, rest)
		in(t, all[0].ns, func() error {
			err := all[0].kernel.Network.Remove()
			routes, listErr := all[0].kernel.Network.RoutesToOthers()
			if len(routes) > 0 {
				t.Errorf("routes left: %v", routes)
			}
			return errors.Join(err, listErr)
		})
	})
}

// The pod network knows about other nodes after its rules were restored, and forgets them with the last.
func TestMasqueradingFollowsNodes(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 2, false)
		ways(t, all, Auto, false)
		in(t, all[0].ns, func() error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			n := all[0].kernel.Network
			_, err = cni.Prepare(cni.Config{
				Dir: n.Dir, ID: "test", Executable: exe, Subnets: n.Subnets, Log: zaptest.NewLogger(t),
			})
			return err
		})
		expectReachable(t, all)
		ways(t, all[:1], Auto, false)
		in(t, all[0].ns, func() error { // by hand, as an administrator may do it
			return netlink.RouteAdd(&netlink.Route{Dst: ipam.IPNet(all[1].facts.ranges[0]), Gw: all[1].facts.ips[0].AsSlice()})
		})
		if got := ask(t, all[0].pod, all[1].podIPs[0]); got != all[0].facts.ips[0].String() {
			t.Errorf("a server outside of the cluster sees %q, want the address of the node", got)
		}
		if _, err := os.Stat(filepath.Join(all[0].kernel.Network.Dir, "others.json")); err == nil {
			t.Error("others.json still exists without other nodes")
		}
	})
}

func mtuOf(t *testing.T, c *computer, link string) (mtu int) {
	in(t, c.ns, func() error {
		l, err := netlink.LinkByName(link)
		if err == nil {
			mtu = l.Attrs().MTU
		}
		return err
	})
	return mtu
}

func TestVXLAN(t *testing.T) {
	t.Parallel()
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 2, true)
		ways(t, all, Auto, true)
		end := capture(t)
		expectReachable(t, all) // with pods whose MTU is that of a time without other nodes
		if got := end(); !slices.Contains(got, "readable in UDP to port 8472") ||
			slices.ContainsFunc(got, func(kind string) bool { return strings.HasPrefix(kind, "readable from") }) {
			t.Errorf("between the machines were:\n%s", strings.Join(got, "\n"))
		}
		for _, link := range []string{all[0].kernel.Network.Bridge, all[0].kernel.Network.VXLANLink()} {
			if mtu := mtuOf(t, all[0], link); mtu != 1450 {
				t.Errorf("the MTU of %s is %d, want 1450", link, mtu)
			}
		}
		alone(t, all[0], all[0].kernel.Network.VXLANLink())
	})
}

func TestWireGuard(t *testing.T) {
	t.Parallel()
	supported := true
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 2, true)
		in(t, all[0].ns, func() error {
			_, err := all[0].kernel.StartWireGuard()
			supported = !errors.Is(err, ErrUnsupported)
			if supported {
				return err
			}
			return nil
		})
		if !supported {
			return
		}
		ways(t, all, Auto, false)
		end := capture(t)
		expectReachable(t, all)
		expectPackets(t, end(), "UDP to port 51820")
		for _, link := range []string{all[0].kernel.Network.Bridge, all[0].kernel.Network.WireGuardLink()} {
			if mtu := mtuOf(t, all[0], link); mtu != 1420 {
				t.Errorf("the MTU of %s is %d, want 1420", link, mtu)
			}
		}
		info, err := os.Stat(all[0].kernel.KeyFile)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the private key: %v, %v", info, err)
		}
		key := all[0].facts.key
		ways(t, all, Auto, false)
		if all[0].facts.key != key {
			t.Error("the key has changed")
		}
		alone(t, all[0], all[0].kernel.Network.WireGuardLink())
	})
	if !supported {
		t.Skip("the kernel has no WireGuard (CONFIG_WIREGUARD)")
	}
	// The endpoint that a node behind a NAT says does not lead there: the other one learns the right one, and keeps it.
	networktest.Isolated(t, func(netns.NsHandle) {
		all := lan(t, 2, true)
		all[1].says = netip.MustParseAddrPort("203.0.113.9:51820")
		for range 2 {
			ways(t, all, Auto, false)
			expectReachable(t, all)
		}
	})
}

// alone tests that nothing is left when the other nodes are gone.
func alone(t *testing.T, c *computer, link string) {
	t.Helper()
	in(t, c.ns, func() error {
		err := c.kernel.Apply(Plan{}, false, false)
		if _, linkErr := netlink.LinkByName(link); linkErr == nil {
			t.Errorf("%s is left without other nodes", link)
		}
		return err
	})
	if mtu := mtuOf(t, c, c.kernel.Network.Bridge); mtu != 1500 {
		t.Errorf("the MTU of pods is %d without other nodes, want 1500", mtu)
	}
}
