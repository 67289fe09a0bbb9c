package cni

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"monopod/agent/network/cni/ipam"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

var ranges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}

// connect connects to an address and returns the error. With UDP, it waits for an answer.
func connect(network, address string) error {
	c, err := net.DialTimeout(network, address, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	if network != "udp" {
		return nil
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// isRefused reports whether the kernel rejected the packet. A sender on this machine gets EPERM.
func isRefused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EPERM)
}

// inside runs f in the pod's network namespace.
func (p *pod) inside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // without UnlockOSThread, the thread exits with the goroutine
		ns, err := netns.GetFromPath(p.path)
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err != nil {
			p.t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// uplink creates a link with default routes that leads out of the machine.
func uplink(t *testing.T) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags = "uplink", net.FlagUp
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "provider"
	errs := []error{netlink.LinkAdd(veth)}
	link, err := netlink.LinkByName("uplink")
	if err != nil {
		t.Error(errs, err)
		return nil
	}
	for _, a := range []string{"192.0.2.2/24", "2001:db8::2/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Error(err)
			return nil
		}
		addr.Flags = unix.IFA_F_NODAD
		errs = append(errs, netlink.AddrAdd(link, addr))
	}
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} {
		errs = append(errs, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gw)}))
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	return link
}

// tables returns the number of nftables tables of this network.
func tables(t *testing.T, n Network) int {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Error(err)
		return 0
	}
	all, err := conn.ListTables()
	if err != nil {
		t.Error(err)
	}
	count := 0
	for _, table := range all {
		if table.Name == n.Table {
			count++
		}
	}
	return count
}

// A connection to a Service without a service proxy is refused at once, from a pod and from the node, although the
// machine has a default route.
func TestServicesWithoutAServerAreRefused(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		uplink(t)
		n := prepare(t, ranges...)
		p := newPod(t, n, "client")
		p.add()
		refused := func(from, network, address string) {
			if err := connect(network, address); !isRefused(err) {
				t.Errorf("from the %s to %s %s: %v, want a refused connection", from, network, address, err)
			}
		}
		p.inside(func() {
			refused("pod", "tcp", "10.96.0.1:443")
			refused("pod", "tcp", "10.96.255.254:80")
			refused("pod", "udp", "10.96.0.10:53")
		})
		refused("node", "tcp", "10.96.0.1:443")
		refused("node", "udp", "10.96.0.10:53")
		refused("node", "tcp", "[fd00:96::1]:443")
		refused("node", "udp", "[fd00:96::a]:53")

		for range 2 { // setUp and Remove are idempotent
			if err := n.setUp(zap.NewNop()); err != nil {
				t.Error(err)
			}
		}
		refused("node", "tcp", "10.96.0.1:443")
		for range 2 {
			if err := n.Remove(); err != nil {
				t.Error(err)
			}
		}
		if left := tables(t, n); left != 0 {
			t.Errorf("%d tables left", left)
		}
	})
}

// A service proxy translates an address before the kernel rejects the connection.
func TestServedServicesAreReached(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		uplink(t)
		n := prepare(t, ranges...)
		p := newPod(t, n, "server")
		p.add()
		p.serve(8080)
		other := newPod(t, n, "caller")
		other.add()
		translate(t, netip.MustParseAddr("10.96.0.1"), p.ip)
		if got, err := get("10.96.0.1:8080"); err != nil {
			t.Errorf("from the node to the Service: client %q, error %v", got, err)
		}
		other.inside(func() {
			if got, err := get("10.96.0.1:8080"); err != nil {
				t.Errorf("from a pod to the Service: client %q, error %v", got, err)
			}
		})
	})
}

// translate translates the destination of packets from one address to another, like a service proxy.
func translate(t *testing.T, from, to netip.Addr) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Error(err)
		return
	}
	table := conn.AddTable(&nftables.Table{Name: "proxy", Family: nftables.TableFamilyIPv4})
	for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting,
		"output": nftables.ChainHookOutput} {
		chain := conn.AddChain(
			&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook,
				Priority: nftables.ChainPriorityNATDest})
		conn.AddRule(
			&nftables.Rule{Table: table, Chain: chain,
				Exprs: append([]expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}},
					&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: from.AsSlice()},
					&expr.Immediate{Register: 1, Data: to.AsSlice()},
					&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
				)})
	}
	// The reply of a pod to a pod takes this path.
	post := conn.AddChain(
		&nftables.Chain{Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
	conn.AddRule(&nftables.Rule{Table: table, Chain: post, Exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		// IPS_DST_NAT
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(1 << 5),
			Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Masq{},
	}})
	if err := conn.Flush(); err != nil {
		t.Error(err)
	}
}

// The node still reaches another network that overlaps the range of Services, and addresses outside of the ranges.
func TestForeignRoutesAreKept(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		link := uplink(t)
		vpn := netip.MustParsePrefix("10.96.4.0/24")
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipam.IPNet(vpn)}); err != nil {
			t.Error(err)
		}
		n := prepare(t, ranges...)
		p := newPod(t, n, "pod")
		p.add()
		for address, want := range map[string]bool{"10.96.4.1:9": true, "10.97.0.1:9": true, "[fd00:96::1]:9": false,
			"[fd00:97::1]:9": true} {
			if err := sent(address); (err == nil) != want || !want && !isRefused(err) {
				t.Errorf("from the node to %s: %v, want the packet sent: %t", address, err, want)
			}
		}
		p.inside(func() {
			if err := connect("tcp", "10.96.4.1:9"); !isRefused(err) {
				t.Errorf("from a pod to the range of Services: %v, want a refused connection", err)
			}
		})
	})
}

// sent returns the error of sending a packet: the second write to a socket returns the error of the first.
func sent(address string) error {
	c, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err1 := c.Write([]byte("x"))
	_, err2 := c.Write([]byte("x"))
	return errors.Join(err1, err2)
}

func TestPodsAreOutsideOfTheRanges(t *testing.T) {
	t.Parallel()
	first := ipam.Plan{ID: "abc"}.Choose()[0]
	if got := (ipam.Plan{ID: "abc", Taken: []netip.Prefix{first}}).Choose()[0]; got.Overlaps(first) {
		t.Errorf("the subnet of pods is %s, which overlaps %s", got, first)
	}
	if got := ipam.WithoutPods([]netip.Prefix{first}, append(ranges, netip.MustParsePrefix("10.0.0.0/8"))); len(
		got) != 2 ||
		strings.Contains(got[0].String(), "/8") {
		t.Errorf("the refused ranges for pods in %[2]s are %[1]v", got, first)
	}
}
