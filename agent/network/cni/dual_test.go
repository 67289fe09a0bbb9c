package cni

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/zap/zaptest"

	"monopod/agent/network/cni/rules"
)

// outside creates another machine, the gateway of the default routes.
func outside(t *testing.T, name string, mtu int) *pod {
	t.Helper()
	p := newPod(t, Network{}, "outside-"+name)
	ns, err := netns.GetFromPath(p.path)
	if err != nil {
		t.Error(err)
		return p
	}
	defer ns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags, attrs.MTU = "uplink", net.FlagUp, mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(ns)
	errs := []error{netlink.LinkAdd(veth)}
	far, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Error(err)
		return p
	}
	defer far.Close()
	near, err := netlink.NewHandle()
	if err != nil {
		t.Error(err)
		return p
	}
	defer near.Close()
	for h, at := range map[*netlink.Handle]struct {
		link, ip4,
		ip6 string
	}{near: {"uplink", "203.0.113.1/24", "2001:db8::1/64"}, far: {"eth0", "203.0.113.2/24", "2001:db8::2/64"}} {
		link, err := h.LinkByName(at.link)
		if err != nil {
			t.Error(errors.Join(errs...), err)
			return p
		}
		for _, text := range []string{at.ip4, at.ip6} {
			to := netip.MustParsePrefix(text)
			errs = append(errs, h.AddrAdd(link, address(to)))
		}
		lo, err := h.LinkByName("lo")
		if err != nil {
			t.Error(err)
			return p
		}
		errs = append(errs, h.LinkSetUp(link), h.LinkSetUp(lo))
		if h == near {
			for _, gw := range []string{"203.0.113.2", "2001:db8::2"} {
				errs = append(errs, h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gw)}))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	p.ips = []netip.Addr{netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("2001:db8::2")}
	return p
}

func at(ip netip.Addr, port uint16) string { return netip.AddrPortFrom(ip, port).String() }

// expect connects to each address, and compares the client address that the server returns.
func expect(t *testing.T, what string, addresses map[string]string) {
	t.Helper()
	got := map[string]string{}
	for address := range addresses {
		from, err := get(address)
		if err != nil {
			from = err.Error()
		}
		got[address] = from
	}
	if diff := cmp.Diff(addresses, got); diff != "" {
		t.Errorf("%s: the server saw (-want +got):\n%s", what, diff)
	}
}

func TestPodsHaveAddressesOfBothFamilies(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		far := outside(t, "dual", 1500)
		n := prepare(t, ranges...)
		a, b := newPod(t, n, "dual-a"), newPod(t, n, "dual-b")
		a.add(rules.Port{HostPort: 18080, ContainerPort: 8080, Protocol: "tcp"},
			rules.Port{HostPort: 18081, ContainerPort: 8080, Protocol: "tcp", HostIP: "::"},
			rules.Port{HostPort: 18082, ContainerPort: 8080, Protocol: "tcp", HostIP: "0.0.0.0"})
		b.add()
		for _, p := range []*pod{a, far} {
			p.serve(8080)
		}
		gw4, gw6 := n.Gateways()[0].String(), n.Gateways()[1].String()
		expect(t, "host", map[string]string{at(a.ips[0], 8080): gw4, at(a.ips[1], 8080): gw6, "127.0.0.1:18080": gw4})
		if _, err := get("[::1]:18080"); !isRefused(err) {
			t.Errorf("host port at ::1: %v, want a refused connection", err)
		}
		b.inside(func() {
			expect(t, "pod", map[string]string{
				at(a.ips[0], 8080): b.ips[0].String(), at(a.ips[1], 8080): b.ips[1].String(),
				gw4 + ":18080": b.ips[0].String(), "[" + gw6 + "]:18080": b.ips[1].String(),
				// Connections that leave the machine have the host's addresses.
				at(far.ips[0], 8080): "203.0.113.1", at(far.ips[1], 8080): "2001:db8::1",
			})
		})
		a.inside(func() {
			expect(t, "pod to itself", map[string]string{gw4 + ":18080": gw4, "[" + gw6 + "]:18080": gw6})
			for _, s := range ipv6Sysctls("eth0") {
				if got := value(s.name); got != s.value {
					t.Errorf("in the pod, %s is %q", s.name, got)
				}
			}
		})
		far.inside(func() {
			expect(t, "another machine", map[string]string{
				"203.0.113.1:18080": "203.0.113.2", "[2001:db8::1]:18080": "2001:db8::2", "[2001:db8::1]:18081": "2001:db8::2",
				"203.0.113.1:18082": "203.0.113.2",
			})
			for _, closed := range []string{"203.0.113.1:18081", "[2001:db8::1]:18082"} {
				if from, err := get(closed); err == nil {
					t.Errorf("%s answers client %s, although the hostIP has the other family", closed, from)
				}
			}
		})
		if out, err := a.run("CHECK"); err != nil {
			t.Errorf("CHECK: %v %s", err, out)
		}
		if out, err := a.run("DEL"); err != nil {
			t.Errorf("DEL: %v %s", err, out)
		}
		for _, address := range []string{"[" + gw6 + "]:18080", gw4 + ":18080"} {
			if _, err := get(address); err == nil {
				t.Errorf("the host port %s still answers after DEL", address)
			}
		}
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
		if left := tables(t, n); left != 0 {
			t.Errorf("%d tables left", left)
		}
	})
}

func TestOnlyIPv6(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges[1])
		p := newPod(t, n, "six")
		p.add(rules.Port{HostPort: 18080, ContainerPort: 8080, Protocol: "tcp"})
		p.serve(8080)
		gw := n.Gateways()[0].String()
		expect(t, "host", map[string]string{at(p.ip, 8080): gw, "[" + gw + "]:18080": gw})
		q := newPod(t, n, "six-b")
		if out, err := q.run("ADD", rules.Port{HostPort: 80, ContainerPort: 80, HostIP: "127.0.0.1"}); err == nil ||
			!strings.Contains(out, "no address of the family") {
			t.Errorf("ADD of an IPv4 host port for an IPv6 pod: %v, %s", err, out)
		}
		if holders, err := n.pool().Holders(); err != nil || len(holders) != 1 {
			t.Errorf("holders %v, %v", holders, err)
		}
	})
}

// A host keeps the default route of a router advertisement when Prepare enables forwarding.
func TestForwardingKeepsAdvertisedRoutes(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		outside(t, "forwarding", 1500)
		const accept = "net/ipv6/conf/uplink/accept_ra"
		if got := value(accept); got != "1" {
			t.Errorf("accept_ra is %q before forwarding, want 1", got)
		}
		n := prepare(t, ranges...)
		if got := value(accept); got != "2" || value("net/ipv6/conf/all/forwarding") != "1" {
			t.Errorf("accept_ra is %q with forwarding, want 2", got)
		}
		if got := value("net/ipv6/conf/" + n.Bridge + "/accept_ra"); got != "0" {
			t.Errorf("accept_ra of the bridge is %q, want 0", got)
		}
	})
}

// After a crash or a reboot, running pods keep their addresses and host ports. Other addresses and ports are free.
func TestReconcileAfterACrash(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		lives, gone, rebooted := newPod(t, n, "crash-lives"), newPod(t, n, "crash-gone"), newPod(t, n, "crash-rebooted")
		for i, p := range []*pod{lives, gone, rebooted} {
			p.add(rules.Port{HostPort: uint16(18090 + i), ContainerPort: 8080, Protocol: "tcp"})
		}
		for _, p := range []*pod{lives, rebooted} {
			p.serve(8080)
		}
		netns.DeleteNamed(filepath.Base(gone.path))
		for _, ip := range rebooted.ips { // as in an earlier boot
			if err := os.WriteFile(n.pool().File(ip), []byte(`{"container":"x","netns":"`+rebooted.path+
				`","boot":"earlier","ports":true}`), 0o600); err != nil {
				t.Error(err)
			}
		}
		again, err := Prepare(Config{Dir: n.Dir, ID: "test", Executable: "/proc/self/exe", Services: ranges,
			Log: zaptest.NewLogger(t)})
		if err != nil || !cmp.Equal(again.Subnets, n.Subnets, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
			t.Errorf("Prepare returned %+v, %v; want the subnets %s again", again, err, n.Subnets)
		}
		holders, err := n.pool().Holders()
		if err != nil || len(holders) != 2 {
			t.Errorf("holders: %v, %v", holders, err)
		}
		for _, ip := range lives.ips {
			if _, ok := holders[ip]; !ok {
				t.Errorf("the address %s of a running pod is free", ip)
			}
		}
		for _, gw := range n.Gateways() {
			expect(t, "running", map[string]string{at(gw, 18090): gw.String()})
			for _, port := range []uint16{18091, 18092} {
				if from, err := get(at(gw, port)); err == nil {
					t.Errorf("the host port %s still answers client %s", at(gw, port), from)
				}
			}
		}
	})
}
