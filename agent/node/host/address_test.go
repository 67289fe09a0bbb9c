package host

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestIPv6OfTheDefaultRoute(t *testing.T) {
	t.Parallel()
	const (
		nothing = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
		eth1    = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth1\n"
		ppp0    = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000002 00000000 00000001     ppp0\n"

		local     = "fe8000000000000000fc00fffe000001 04 40 20 80     eth1\n00000000000000000000000000000001 01 80 10 80       lo\n"
		bridge    = "fd880000000000000000000000000001 05 40 00 82  mp-abc\n"
		temporary = "20010db8000000000000000000000009 04 40 00 01     eth1\n"
		tentative = "20010db8000000000000000000000008 04 40 00 40     eth1\n"
		stable    = "20010db8000000000000000000000002 04 40 00 00     eth1\n"
		dialled   = "20010db8000000000000000000000003 06 40 00 80     ppp0\n"
	)
	for _, tt := range []struct{ name, routes, addresses, want string }{
		{"none", nothing, local, "invalid IP"},
		{"no IPv6", "", "", "invalid IP"},
		{"default route", nothing + eth1, local + bridge + stable, "2001:db8::2"},
		{"through no gateway", ppp0, bridge + stable + dialled, "2001:db8::3"},
		{"not a temporary one", eth1, temporary + tentative + stable, "2001:db8::2"},
		{"without a default route", nothing, local + bridge + stable, "fd88::1"},
		{"the link of the default route has none", eth1, local + bridge, "fd88::1"},
		{"damaged", eth1, "zz 04 40 00 00 eth1\nfd 1\n", "invalid IP"},
	} {
		uplink, others := addresses6(tt.routes, tt.addresses)
		if got := prefer(nil, corev1.IPv6Protocol, uplink, others).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
