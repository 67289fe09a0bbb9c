package cni

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestChoose(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: "/d/cni", ID: "abc"}
	first := choose(cfg, Network{}, nil)
	if !pool.Overlaps(first.Subnet) || first.Subnet.Bits() != 24 || len(first.Bridge) > 15 {
		t.Fatalf("chose %+v", first)
	}
	old := Network{Subnet: netip.MustParsePrefix("10.95.255.0/24")}
	for _, tt := range []struct {
		name  string
		old   Network
		taken []netip.Prefix
		want  func(netip.Prefix) bool
	}{
		{"the same again", Network{}, nil, func(p netip.Prefix) bool { return p == first.Subnet }},
		{"kept", old, prefixes("192.168.0.0/16"), func(p netip.Prefix) bool { return p == old.Subnet }},
		{"kept no longer", old, prefixes("10.95.255.128/25"), func(p netip.Prefix) bool { return p == first.Subnet }},
		{"next one", Network{}, []netip.Prefix{first.Subnet}, func(p netip.Prefix) bool { return p != first.Subnet && pool.Overlaps(p) }},
		{"outside the half that is taken", Network{}, prefixes("10.88.0.0/14"), netip.MustParsePrefix("10.92.0.0/14").Overlaps},
	} {
		if got := choose(cfg, tt.old, tt.taken).Subnet; !tt.want(got) {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

func TestSubnetHasTwiceAsManyAddressesAsPods(t *testing.T) {
	t.Parallel()
	for pods, want := range map[int]int{0: 24, 1: 24, 110: 24, 126: 24, 127: 23, 500: 22, 510: 22, 511: 21, 1 << 20: 14} {
		got := choose(Config{ID: "abc", Pods: pods}, Network{}, prefixes("10.88.0.0/24")).Subnet
		if got.Bits() != want || got != got.Masked() || !pool.Contains(got.Addr()) || got.Contains(netip.MustParseAddr("10.88.0.1")) {
			t.Errorf("%d pods: %s, want a /%d of what is free", pods, got, want)
		}
	}
}

func TestSubnetGrowsWhenNobodyHasAnAddress(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24")
	data, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.Dir, "network.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	after := func(pods int) netip.Prefix {
		t.Helper()
		got, err := loadFitting(Config{Dir: n.Dir, Pods: pods, Log: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		return got.Subnet
	}
	if got := after(110); got != n.Subnet {
		t.Errorf("large enough, yet %s", got)
	}
	if got := after(500); got.IsValid() {
		t.Errorf("too small for 500 pods, yet %s is kept", got)
	}
	if _, err := n.allocate(holder{Container: "c", IfName: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if got := after(500); got != n.Subnet {
		t.Errorf("a pod lives in it, yet %s", got)
	}
}

func testNetwork(t *testing.T, subnet string) Network {
	t.Helper()
	n := Network{Bridge: "mp-test", Subnet: netip.MustParsePrefix(subnet), Table: "monopod-test", Dir: t.TempDir()}
	if err := n.writeFiles("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConflistIsReadBack(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24")
	data, err := os.ReadFile(filepath.Join(n.ConfDir(), "10-monopod.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Plugins []json.RawMessage }
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	conf, err := parseConf(list.Plugins[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n, conf.Network, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if _, err := parseConf([]byte(`{"type":"monopod-cni"}`)); err == nil {
		t.Error("a configuration without bridge was accepted")
	}
}

func alive(name string) holder {
	return holder{Container: name, IfName: "eth0", Netns: "/proc/self/ns/net", Boot: "b"}
}

func mustAllocate(t *testing.T, n Network, h holder) string {
	t.Helper()
	ip, err := n.allocate(h)
	if err != nil {
		t.Fatal(err)
	}
	return ip.String()
}

func TestAddressesGoRound(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/29") // .2 to .6
	var got []string
	for _, c := range []string{"a", "b", "c"} {
		got = append(got, mustAllocate(t, n, alive(c)))
	}
	if err := n.release("b", "eth0"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"d", "e", "f"} {
		got = append(got, mustAllocate(t, n, alive(c)))
	}
	want := []string{"10.88.7.2", "10.88.7.3", "10.88.7.4", "10.88.7.5", "10.88.7.6", "10.88.7.3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := n.allocate(alive("g")); err == nil {
		t.Error("a sixth address out of five")
	}
}

func TestLeakedAddressesComeBack(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/29")
	mustAllocate(t, n, alive("runs"))
	mustAllocate(t, n, holder{Container: "ns-gone", IfName: "eth0", Netns: "/nowhere", Boot: "b"})
	mustAllocate(t, n, holder{Container: "booted", IfName: "eth0", Netns: "/proc/self/ns/net", Boot: "an earlier boot"})
	if err := os.WriteFile(filepath.Join(n.ipDir(), "10.88.7.5"), nil, 0o644); err != nil { // cut short by a crash
		t.Fatal(err)
	}
	for _, c := range []string{"p", "q", "r", "s"} {
		mustAllocate(t, n, alive(c))
	}
	if _, err := n.allocate(alive("t")); err == nil {
		t.Error("the address of a running pod was allocated again")
	}
}

// The holder of an unreadable file is unknown, so the address is not allocated.
func TestUnreadableHolderKeepsItsAddress(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/29")
	if err := os.Mkdir(filepath.Join(n.ipDir(), "10.88.7.4"), 0o700); err != nil { // reading it fails
		t.Fatal(err)
	}
	for _, c := range []string{"a", "b", "c", "d"} {
		if ip := mustAllocate(t, n, alive(c)); ip == "10.88.7.4" {
			t.Errorf("%s was given away", ip)
		}
	}
	if ip, err := n.allocate(alive("e")); err == nil {
		t.Errorf("%s was given away", ip)
	}
}

func TestAllocateAgainForTheSame(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24")
	mustAllocate(t, n, alive("a"))
	mustAllocate(t, n, alive("a"))
	held, err := n.holders()
	if err != nil || len(held) != 1 {
		t.Errorf("held = %v, %v; want one address", held, err)
	}
}

func TestReleaseOfNothing(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24")
	mustAllocate(t, n, alive("a"))
	if err := n.release("unknown", "eth0"); err != nil {
		t.Error(err)
	}
	if held, err := n.holders(); err != nil || len(held) != 1 {
		t.Errorf("held %v, %v; want the one of another", held, err)
	}
	n.Dir = filepath.Join(n.Dir, "not", "there")
	if err := n.release("unknown", "eth0"); err != nil {
		t.Errorf("in a folder that is not there: %v", err)
	}
}

func TestPortKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   portMapping
		want []byte
	}{
		{portMapping{HostPort: 80}, []byte{0, 0, 0, 0, 6, 0, 0, 0, 0, 80, 0, 0}},
		{portMapping{HostPort: 0x1234, Protocol: "UDP", HostIP: "192.168.0.1"}, []byte{192, 168, 0, 1, 17, 0, 0, 0, 0x12, 0x34, 0, 0}},
		{portMapping{HostPort: 80, Protocol: "icmp"}, nil},
		{portMapping{HostPort: 80, HostIP: "::1"}, nil},
	} {
		got, err := tt.in.key()
		if (err != nil) != (tt.want == nil) || string(got) != string(tt.want) {
			t.Errorf("%+v: %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
}
