package agent

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPodCIDR(t *testing.T) {
	t.Parallel()
	both := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	for _, tt := range []struct {
		cidr     string
		pods     int
		services []netip.Prefix
		want     string // the families or part of the error
	}{
		{"", 110, both[:1], "[IPv4]"},
		{"", 110, both, "[IPv4 IPv6]"},
		{"10.1.0.0/24", 110, both[:1], "[IPv4]"},
		{"fd01::/64,10.1.0.0/24", 110, both, "[IPv6 IPv4]"},
		{"10.1.0.0/24, fd01::/64", 110, both[:1], "[IPv4 IPv6]"},
		{"10.1.0.0/24", 110, both, "no range of the IP family of fd00:96::/112"},
		{"10.96.8.0/24", 110, both[:1], "overlaps 10.96.0.0/16"},
		{"10.1.0.1/24", 110, both[:1], "did you mean 10.1.0.0/24?"},
		{"10.1.0.0/24", 254, both[:1], "10.1.0.0/24 has addresses for 253 pods, fewer than --max-pods=254"},
		{"10.1.0.0/32", 1, both[:1], "has addresses for 0 pods"},
		{"fd01::/112", 65534, both[1:], "has addresses for 65533 pods"},
		{"10.1.0.0/24,10.2.0.0/24", 110, both[:1], "must be one range, or one of IPv4 and one of IPv6"},
		{"10.1.0.0", 110, both[:1], "no '/'"},
	} {
		n := PodNetwork{PodCIDR: tt.cidr}
		err := n.complete(tt.pods)
		if err == nil {
			err = n.CheckServices(tt.services)
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			for _, f := range n.families(tt.services) {
				got += " " + string(f)
			}
			got = "[" + strings.TrimSpace(got) + "]"
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%q for %d pods with Services in %s: %s, want %s", tt.cidr, tt.pods, tt.services, got, tt.want)
		}
	}
}
