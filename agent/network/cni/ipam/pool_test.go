package ipam

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func TestUsedAddresses(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/24", "fd88::/64")
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	lives := alive("lives")
	lives.Boot = boot
	if _, err := p.Allocate(lives); err != nil {
		t.Fatal(err)
	}
	mustAllocate(t, p, alive("earlier-boot"))
	used, err := p.Used()
	slices.SortFunc(used, netip.Addr.Compare)
	if want := []netip.Addr{netip.MustParseAddr("10.88.7.2"), netip.MustParseAddr("fd88::2")}; err != nil ||
		!slices.Equal(used, want) {
		t.Errorf("used addresses %s, error %v, want %s", used, err, want)
	}
}

func alive(name string) Holder {
	return Holder{Container: name, IfName: "eth0", Netns: "/proc/self/ns/net", Boot: "b"}
}

func mustAllocate(t *testing.T, p Pool, h Holder) string {
	t.Helper()
	ips, err := p.Allocate(h)
	if err != nil {
		t.Fatal(err)
	}
	return ips[0].String()
}

func TestAddressesAreReusedLast(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29") // the addresses .2 to .6
	var got []string
	for _, c := range []string{"a", "b", "c"} {
		got = append(got, mustAllocate(t, p, alive(c)))
	}
	if err := p.Release("b", "eth0", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"d", "e", "f"} {
		got = append(got, mustAllocate(t, p, alive(c)))
	}
	want := []string{"10.88.7.2", "10.88.7.3", "10.88.7.4", "10.88.7.5", "10.88.7.6", "10.88.7.3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := p.Allocate(alive("g")); err == nil {
		t.Error("Allocate returned a sixth address from a pool of five")
	}
}

func TestLeakedAddressesAreReleased(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	mustAllocate(t, p, alive("runs"))
	mustAllocate(t, p, Holder{Container: "ns-gone", IfName: "eth0", Netns: "/nowhere", Boot: "b"})
	mustAllocate(t, p, Holder{Container: "booted", IfName: "eth0", Netns: "/proc/self/ns/net", Boot: "an earlier boot"})
	if err := os.WriteFile(filepath.Join(p.Folder(), "10.88.7.5"), nil, 0o644); err != nil { // truncated by a crash
		t.Fatal(err)
	}
	for _, c := range []string{"p", "q", "r", "s"} {
		mustAllocate(t, p, alive(c))
	}
	if _, err := p.Allocate(alive("t")); err == nil {
		t.Error("the address of a running pod was allocated again")
	}
}

// If the file of an address is not readable, its holder is unknown, and the pool does not allocate the address.
func TestUnreadableHolderKeepsItsAddress(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	if err := os.Mkdir(filepath.Join(p.Folder(), "10.88.7.4"), 0o700); err != nil { // reading it fails
		t.Fatal(err)
	}
	for _, c := range []string{"a", "b", "c", "d"} {
		if ip := mustAllocate(t, p, alive(c)); ip == "10.88.7.4" {
			t.Errorf("the pool allocated %s", ip)
		}
	}
	if ip, err := p.Allocate(alive("e")); err == nil {
		t.Errorf("the pool allocated %s", ip)
	}
}

func TestRepeatedAllocationReturnsSameAddress(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/24")
	mustAllocate(t, p, alive("a"))
	mustAllocate(t, p, alive("a"))
	holders, err := p.Holders()
	if err != nil || len(holders) != 1 {
		t.Errorf("holders = %v, %v; want one address", holders, err)
	}
}

func TestReleaseOfUnknownContainer(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/24")
	mustAllocate(t, p, alive("a"))
	if err := p.Release("unknown", "eth0", nil); err != nil {
		t.Error(err)
	}
	if holders, err := p.Holders(); err != nil || len(holders) != 1 {
		t.Errorf("holders %v, error %v; want one of another container", holders, err)
	}
	p.Dir = filepath.Join(p.Dir, "not", "there")
	if err := p.Release("unknown", "eth0", nil); err != nil {
		t.Errorf("release in a folder that does not exist: %v", err)
	}
}

// The families wrap around independently. Allocate returns addresses of both families or none.
func TestAddressesOfBothFamilies(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29", "fd88::/64")
	for i := range 5 {
		ips, err := p.Allocate(alive(string(rune('a' + i))))
		if want := netip.AddrFrom4([4]byte{10, 88, 7, byte(2 + i)}); err != nil || len(ips) != 2 || ips[0] != want ||
			ips[1].As16()[15] != byte(2+i) {
			t.Fatalf("pod %d has the addresses %s, error %v", i, ips, err)
		}
	}
	if _, err := p.Allocate(alive("f")); !errors.Is(err, errPoolEmpty) {
		t.Errorf("the allocation of a sixth address out of five returned %v", err)
	}
	if holders, err := p.Holders(); err != nil || len(holders) != 10 {
		t.Errorf("holders: %v, %v", holders, err)
	}
	if err := p.Release("b", "eth0", nil); err != nil {
		t.Fatal(err)
	}
	ips, err := p.Allocate(alive("g"))
	if err != nil || ips[0].String() != "10.88.7.3" || ips[1].String() != "fd88::7" {
		t.Errorf("addresses %s, error %v, want 10.88.7.3 and fd88::7", ips, err)
	}
	p.Subnets = prefixes("fd88::/64")
	if err := os.WriteFile(p.lastFile(false), []byte("fd88::ffff"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustAllocate(t, p, alive("h")); got != "fd88::3" {
		t.Errorf("the address after fd88::ffff is %s, want fd88::3", got)
	}
}

func testPool(t *testing.T, subnets ...string) Pool {
	t.Helper()
	p := Pool{Dir: t.TempDir(), Subnets: prefixes(subnets...)}
	if err := os.Mkdir(p.Folder(), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// After a reboot a pod gets the addresses that it had, even if others start first.
func TestFormerAddresses(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/24", "fd88::/64")
	of := func(container, pod, uid string) Holder {
		h := alive(container)
		h.Pod = PodRef{NamespacedName: types.NamespacedName{Namespace: "default", Name: pod}, UID: types.UID(uid)}
		return h
	}
	first := map[string]string{}
	for _, pod := range []string{"a", "b", "c"} {
		first[pod] = mustAllocate(t, p, of("sandbox-"+pod, pod, "uid-"+pod)) // of another boot
	}
	if err := p.Reclaim(func(func(netip.Addr) bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pod, uid string
		same     bool
	}{{"new", "uid-new", false}, {"c", "uid-c", true}, {"b", "another", false}, {"a", "uid-a", true}} {
		ips, err := p.Allocate(of("again-"+c.pod, c.pod, c.uid))
		if err != nil {
			t.Fatal(err)
		}
		if got := ips[0].String() == first[c.pod]; got != c.same || len(ips) != 2 {
			t.Errorf("%s: %s, first %s", c.pod, ips, first[c.pod])
		}
	}
}
