package cni

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestLivingPodsAreFound(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24", "fd88::/64")
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	lives := alive("lives")
	lives.Boot = boot
	if _, err := n.allocate(lives); err != nil {
		t.Fatal(err)
	}
	mustAllocate(t, n, alive("of an earlier boot"))
	used, err := n.used()
	slices.SortFunc(used, netip.Addr.Compare)
	if want := []netip.Addr{netip.MustParseAddr("10.88.7.2"), netip.MustParseAddr("fd88::2")}; err != nil || !slices.Equal(used, want) {
		t.Errorf("used: %s, %v, want %s", used, err, want)
	}
}

func testNetwork(t *testing.T, subnets ...string) Network {
	t.Helper()
	n := Network{Bridge: "mp-test", Subnets: prefixes(subnets...), Table: "monopod-test", Dir: t.TempDir()}
	if err := n.writeFiles("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConflistIsReadBack(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/24")
	data, err := os.ReadFile(filepath.Join(n.ConfDir(), confName))
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
	ips, err := n.allocate(h)
	if err != nil {
		t.Fatal(err)
	}
	return ips[0].String()
}

func TestAddressesAreReusedLast(t *testing.T) {
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

func TestLeakedAddressesAreReleased(t *testing.T) {
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

func TestRepeatedAllocationReturnsSameAddress(t *testing.T) {
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

// Both families wrap around on their own; a pod that gets no address of one has none of the other.
func TestAddressesOfBothFamilies(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, "10.88.7.0/29", "fd88::/64")
	for i := range 5 {
		ips, err := n.allocate(alive(string(rune('a' + i))))
		if want := netip.AddrFrom4([4]byte{10, 88, 7, byte(2 + i)}); err != nil || len(ips) != 2 || ips[0] != want || ips[1].As16()[15] != byte(2+i) {
			t.Fatalf("%s, %v", ips, err)
		}
	}
	if _, err := n.allocate(alive("f")); !errors.Is(err, errPoolEmpty) {
		t.Errorf("a sixth address of five: %v", err)
	}
	if held, err := n.holders(); err != nil || len(held) != 10 {
		t.Errorf("held: %v, %v", held, err)
	}
	if err := n.release("b", "eth0"); err != nil {
		t.Fatal(err)
	}
	ips, err := n.allocate(alive("g"))
	if err != nil || ips[0].String() != "10.88.7.3" || ips[1].String() != "fd88::7" {
		t.Errorf("%s, %v", ips, err)
	}
	n.Subnets = prefixes("fd88::/64")
	if err := os.WriteFile(n.lastFile(false), []byte("fd88::ffff"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustAllocate(t, n, alive("h")); got != "fd88::3" {
		t.Errorf("after the last of 65,536: %s, want the first free", got)
	}
}
