package ipam

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// Two processes that remember, and one that does not, allocate and release in turn. Each knows what the others have done: no
// address has two holders, and all are freed.
func TestProcessesShareAPool(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/28")
	processes := []Pool{p, p, p}
	processes[0].Memory, processes[1].Memory = &Memory{}, &Memory{}
	random := rand.New(rand.NewPCG(1, 2))
	want := map[netip.Addr]Holder{}
	for i := range 150 {
		p, h := processes[random.IntN(len(processes))], alive(fmt.Sprint(random.IntN(16)))
		maps.DeleteFunc(want, func(_ netip.Addr, other Holder) bool { return other.Is(h.Container, h.IfName) })
		if random.IntN(2) == 0 {
			if err := p.Release(h.Container, h.IfName, nil); err != nil {
				t.Fatal(err)
			}
		} else if ips, err := p.Allocate(h); err == nil {
			if other, taken := want[ips[0]]; taken {
				t.Fatalf("%s of %s was allocated to %s, too", ips[0], other.Container, h.Container)
			}
			want[ips[0]] = h
		} else if !errors.Is(err, errPoolEmpty) || len(want) != 13 {
			t.Fatalf("%v with %d in use", err, len(want))
		}
		held, err := p.Holders()
		if diff := cmp.Diff(want, held, cmpopts.EquateComparable(netip.Addr{}, Holder{}.Pod), cmpopts.IgnoreUnexported(Holder{})); err != nil || diff != "" {
			t.Fatalf("step %d: %v %s", i, err, diff)
		}
	}
}

// A process does not read the files again that it has written, but notices those that are removed or added by hand.
func TestMemory(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	p.Memory = &Memory{}
	mustAllocate(t, p, alive("a"))
	b := mustAllocate(t, p, alive("b"))
	if err := os.WriteFile(p.File(netip.MustParseAddr(b)), []byte("unreadable"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Release("b", "eth0", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.File(netip.MustParseAddr(b))); err == nil {
		t.Error("the holder was read again")
	}
	if err := os.Remove(p.File(netip.MustParseAddr("10.88.7.2"))); err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"10.88.7.4", "10.88.7.6"} {
		if err := os.WriteFile(p.File(netip.MustParseAddr(ip)), []byte(`{"container":"x","ifname":"eth0","netns":"/proc/self/ns/net","boot":"b"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, c := range []string{"c", "d", "e"} {
		got = append(got, mustAllocate(t, p, alive(c)))
	}
	if diff := cmp.Diff([]string{"10.88.7.5", "10.88.7.2", "10.88.7.3"}, got); diff != "" {
		t.Error(diff)
	}
}

// An update that failed halfway is read again.
func TestFailedReleaseIsNotRemembered(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	p.Memory = &Memory{}
	h := alive("a")
	h.Ports = true
	ip := netip.MustParseAddr(mustAllocate(t, p, h))
	failed := errors.New("in use")
	if err := p.Release("a", "eth0", func(netip.Addr) error { return failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if held, err := p.Holders(); err != nil || !held[ip].Is("a", "eth0") {
		t.Errorf("held %v, %v", held, err)
	}
	if err := p.Release("a", "eth0", func(netip.Addr) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if held, err := p.Holders(); err != nil || len(held) > 0 {
		t.Errorf("held %v, %v", held, err)
	}
}

// A process of an earlier version, which does not count, has given an address that was leaked to a container that lives.
func TestEmptyPoolReadsHoldersAgain(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	p.Memory = &Memory{}
	leaked := mustAllocate(t, p, Holder{Container: "leaked", IfName: "eth0", Netns: "/nowhere", Boot: "b"})
	for _, c := range []string{"a", "b", "c", "d"} {
		mustAllocate(t, p, alive(c))
	}
	if err := p.hold(netip.MustParseAddr(leaked), alive("x")); err != nil {
		t.Fatal(err)
	}
	if ips, err := p.Allocate(alive("e")); !errors.Is(err, errPoolEmpty) {
		t.Errorf("got %v, %v, although all addresses are in use", ips, err)
	}
	if err := p.hold(netip.MustParseAddr("10.88.7.4"), Holder{Netns: "/nowhere"}); err != nil {
		t.Fatal(err)
	}
	if got := mustAllocate(t, p, alive("e")); got != "10.88.7.4" {
		t.Errorf("got %s, want the leaked one", got)
	}
}

// On a full disk, addresses are released although the file of the lock has no room for a number, and other processes notice that.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	if err := unix.Mount("tmpfs", p.Dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("left out: cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(p.Dir, unix.MNT_DETACH) })
	if err := os.Mkdir(p.Folder(), 0o700); err != nil {
		t.Fatal(err)
	}
	a := mustAllocate(t, p, alive("a"))
	gone := mustAllocate(t, p, Holder{Container: "gone", IfName: "eth0", Netns: "/nowhere", Boot: "b"})
	other := p // a process that remembers
	other.Memory = &Memory{}
	mustAllocate(t, other, alive("b"))
	if err := os.Truncate(filepath.Join(p.Dir, "lock"), 0); err != nil { // as a version that does not count leaves it
		t.Fatal(err)
	}
	for what, release := range map[string]func() error{
		a:    func() error { return p.Release("a", "eth0", nil) },
		gone: func() error { return p.Reclaim(func(func(netip.Addr) bool) error { return nil }) },
	} {
		fill(t, p.Dir)
		if ips, err := p.Allocate(alive("c")); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("allocated %v, %v", ips, err)
		}
		if err := release(); err != nil {
			t.Errorf("release %s: %v", what, err)
		}
		if _, err := os.Stat(filepath.Join(p.Folder(), what)); err == nil {
			t.Errorf("%s is not released", what)
		}
	}
	if err := os.Remove(filepath.Join(p.Dir, "filler")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range []string{"d", "e", "f", "g"} {
		got = append(got, mustAllocate(t, other, alive(c)))
	}
	if diff := cmp.Diff([]string{"10.88.7.5", "10.88.7.6", a, gone}, got); diff != "" {
		t.Error(diff)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
