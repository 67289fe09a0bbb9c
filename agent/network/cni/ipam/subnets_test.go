package ipam

import (
	"net/netip"
	"slices"
	"testing"

	"go.uber.org/zap"
)

func parsePrefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestChoose(t *testing.T) {
	t.Parallel()
	first := planned(Plan{ID: "abc"})[0]
	if !ipv4Range.Overlaps(first) || first.Bits() != 24 {
		t.Fatalf("chose %s", first)
	}
	old := parsePrefixes("10.95.255.0/24")
	for _, tt := range []struct {
		name  string
		old   []netip.Prefix
		taken []netip.Prefix
		want  func(netip.Prefix) bool
	}{
		{"same choice", nil, nil, func(p netip.Prefix) bool { return p == first }},
		{"previous subnet is free", old, parsePrefixes("192.168.0.0/16"), func(p netip.Prefix) bool { return p == old[0] }},
		{"previous subnet is taken", old, parsePrefixes("10.95.255.128/25"), func(p netip.Prefix) bool { return p == first }},
		{"first taken", nil, []netip.Prefix{first}, func(p netip.Prefix) bool { return p != first && ipv4Range.Overlaps(p) }},
		{"half of the range is taken", nil, parsePrefixes("10.88.0.0/14"),
			netip.MustParsePrefix("10.92.0.0/14").Overlaps},
	} {
		if got := (Plan{ID: "abc", Previous: tt.old, Taken: tt.taken}).Choose(); len(got) != 1 || !tt.want(got[0]) {
			t.Errorf("%s: chose %s", tt.name, got)
		}
	}
}

func planned(p Plan, taken ...netip.Prefix) []netip.Prefix {
	p.Taken = taken
	return p.Choose()
}

func TestSubnetHasTwiceAsManyAddressesAsPods(t *testing.T) {
	t.Parallel()
	for pods, want := range map[int]int{0: 24, 1: 24, 110: 24, 126: 24, 127: 23, 500: 22, 510: 22, 511: 21, 1 << 20: 14} {
		got := planned(Plan{ID: "abc", Pods: pods}, parsePrefixes("10.88.0.0/24")...)[0]
		if got.Bits() != want || got != got.Masked() || !ipv4Range.Contains(got.Addr()) ||
			got.Contains(netip.MustParseAddr("10.88.0.1")) {
			t.Errorf("%d pods: chose %s, want a free /%d", pods, got, want)
		}
	}
}

// The subnets follow the flags, except while pods have addresses in the old ones.
func TestSubnetsOfBothFamilies(t *testing.T) {
	t.Parallel()
	both := parsePrefixes("10.96.0.0/16", "fd00:96::/112")
	auto := planned(Plan{ID: "abc", Services: both})
	if len(auto) != 2 || !ipv4Range.Overlaps(auto[0]) || auto[1].Bits() != 64 ||
		!netip.MustParsePrefix("fd00::/8").Contains(auto[1].Addr()) || auto[1] != auto[1].Masked() {
		t.Fatalf("chose %s", auto)
	}
	if other := planned(Plan{ID: "abc", Services: both}, auto...); other[0] == auto[0] || other[1] == auto[1] {
		t.Errorf("chose %s, which is taken", other)
	}
	for _, tt := range []struct {
		name            string
		given, services []netip.Prefix
		old             []netip.Prefix
		used            string
		want            []netip.Prefix
	}{
		{"IPv6 first", nil, parsePrefixes("fd00:96::/112", "10.96.0.0/16"), nil, "", []netip.Prefix{auto[1], auto[0]}},
		{"only IPv6", nil, both[1:], nil, "", auto[1:]},
		{"given", parsePrefixes("10.1.0.0/24", "fd01::/64"), both, auto, "", parsePrefixes("10.1.0.0/24", "fd01::/64")},
		{"given, in use", parsePrefixes("10.1.0.0/24", "fd01::/64"), both, auto, auto[0].Addr().Next().String(),
			[]netip.Prefix{auto[0], parsePrefixes("fd01::/64")[0]}},
		{"additional family", nil, both, parsePrefixes("10.88.7.0/24"), "10.88.7.9",
			append(parsePrefixes("10.88.7.0/24"), auto[1])},
		{"removed family", nil, both[:1], auto, "", auto[:1]},
		{"removed family, in use", nil, both[:1], auto, auto[1].Addr().Next().String(), auto},
		{"too small", nil, both[:1], parsePrefixes("10.88.7.0/28"), "", auto[:1]},
		{"too small, in use", nil, both[:1], parsePrefixes("10.88.7.0/28"), "10.88.7.2", parsePrefixes("10.88.7.0/28")},
	} {
		var used []netip.Addr
		if tt.used != "" {
			used = append(used, netip.MustParseAddr(tt.used))
		}
		got := Plan{ID: "abc", Configured: tt.given, Services: tt.services, Log: zap.NewNop(), Previous: tt.old,
			Used: used}.Choose()
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	for subnet, want := range map[string]int{"10.0.0.0/24": 253, "10.0.0.0/29": 5, "fd00::/64": 65533, "fd00::/120": 253} {
		if got := Capacity(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("the capacity of %s is %d, want %d", subnet, got, want)
		}
	}
}
