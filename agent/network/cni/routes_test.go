package cni

import (
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"

	"monopod/agent/network/cni/rules"
)

// Pods and the bridge have the MTU of the link of the default route, or 1500 without a default route.
func TestMTUOfTheDefaultRoute(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		mtu := func(what string, want int) {
			bridge, err := netlink.LinkByName(n.Bridge)
			if err != nil || bridge.Attrs().MTU != want {
				t.Errorf("%s: the bridge is %v, error %v; want MTU %d", what, bridge, err, want)
			}
			p := newPod(t, n, "mtu-"+what)
			p.add()
			p.inside(func() {
				if link, err := netlink.LinkByName("eth0"); err != nil || link.Attrs().MTU != want {
					t.Errorf("%s: the link of the pod is %v, error %v; want MTU %d", what, link, err, want)
				}
			})
		}
		mtu("none", 1500)
		outside(t, "mtu", 1400)
		if err := n.Adapt(); err != nil {
			t.Error(err)
		}
		mtu("smaller", 1400)
		uplink, err := netlink.LinkByName("uplink")
		if err != nil {
			t.Error(err)
			return
		}
		for _, change := range []struct {
			what      string
			set, want int
		}{{"jumbo", 9000, 9000}, {"tiny", 1000, minMTU6}} {
			if err := netlink.LinkSetMTU(uplink, change.set); err != nil {
				t.Error(err)
			}
			if err := n.setUp(zap.NewNop()); err != nil {
				t.Error(err)
			}
			mtu(change.what, change.want)
		}
	})
}

// Without a default route, the host reaches Services with a translation; connections to other addresses of the range
// are refused.
func TestServicesWithoutADefaultRoute(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		n := prepare(t, ranges...)
		p := newPod(t, n, "routeless")
		p.add(rules.Port{HostPort: 18080, ContainerPort: 8080, Protocol: "tcp"})
		p.serve(8080)
		translate(t, ranges[0].Addr().Next(), p.ips[0])
		for range 2 { // setUp is idempotent
			expect(t, "host", map[string]string{"10.96.0.1:8080": n.Gateways()[0].String()})
			if err := connect("tcp", "10.96.0.2:80"); !isRefused(err) {
				t.Errorf("connection to an unserved address: %v", err)
			}
			if err := connect("tcp", "[fd00:96::2]:80"); !isRefused(err) {
				t.Errorf("connection to an unserved IPv6 address: %v", err)
			}
			if err := n.setUp(zap.NewNop()); err != nil {
				t.Error(err)
			}
		}
		count := func() (n int) {
			for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
				list, err := netlink.RuleList(family)
				if err != nil {
					t.Error(err)
				}
				for _, r := range list {
					if r.Priority == rulePriority {
						n++
					}
				}
			}
			return n
		}
		if got := count(); got != 2 {
			t.Errorf("%d rules, want one of each family", got)
		}
		n.Services = ranges[:1]
		if err := n.setUp(zap.NewNop()); err != nil || count() != 1 {
			t.Errorf("%v, %d rules with one range", err, count())
		}
		if err := n.Remove(); err != nil || count() != 0 {
			t.Errorf("%v, %d rules left", err, count())
		}
	})
}
