package host

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

func TestIPv6OfTheDefaultRoute(t *testing.T) {
	t.Parallel()
	type (
		routes    = []netlink.Route
		addresses = []netlink.Addr
	)
	_, everything, _ := net.ParseCIDR("::/0")
	_, network, _ := net.ParseCIDR("2001:db8::/64")
	at := func(link int, address string, flags int) netlink.Addr {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		parsed.LinkIndex, parsed.Flags = link, flags
		return *parsed
	}
	var (
		nothing = netlink.Route{LinkIndex: 1, Dst: everything, Type: unix.RTN_UNREACHABLE}
		near    = netlink.Route{LinkIndex: 5, Dst: network}
		eth1    = netlink.Route{LinkIndex: 4, Dst: everything, Gw: net.ParseIP("fd00::1")}
		ppp0    = netlink.Route{LinkIndex: 6}
		both    = netlink.Route{MultiPath: []*netlink.NexthopInfo{{LinkIndex: 6}, {LinkIndex: 4}}}

		local     = at(4, "fe80::fc:ff:fe00:1/64", unix.IFA_F_PERMANENT)
		loopback  = at(1, "::1/128", unix.IFA_F_PERMANENT)
		bridge    = at(5, "fd88::1/64", unix.IFA_F_PERMANENT|unix.IFA_F_NODAD)
		temporary = at(4, "2001:db8::9/64", unix.IFA_F_TEMPORARY)
		tentative = at(4, "2001:db8::8/64", unix.IFA_F_TENTATIVE)
		stable    = at(4, "2001:db8::2/64", 0)
		dialled   = at(6, "2001:db8::3/64", unix.IFA_F_PERMANENT)
	)
	for _, tt := range []struct {
		name      string
		routes    routes
		addresses addresses
		want      string
	}{
		{"none", routes{nothing}, addresses{local, loopback}, "invalid IP"},
		{"no IPv6", nil, nil, "invalid IP"},
		{"default route", routes{near, nothing, eth1}, addresses{local, bridge, stable}, "2001:db8::2"},
		{"through no gateway", routes{ppp0}, addresses{bridge, stable, dialled}, "2001:db8::3"},
		{"through several gateways", routes{both}, addresses{bridge, stable, dialled}, "2001:db8::3"},
		{"temporary address", routes{eth1}, addresses{temporary, tentative, stable}, "2001:db8::2"},
		{"without a default route", routes{near, nothing}, addresses{local, bridge, stable}, "fd88::1"},
		{"no address on the link of the default route", routes{eth1}, addresses{local, bridge}, "fd88::1"},
	} {
		uplink, others := splitByRoute(tt.routes, tt.addresses)
		if got := chooseAddress(nil, corev1.IPv6Protocol, uplink, others).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
