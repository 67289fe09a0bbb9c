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

// Three pools on one folder represent three processes, which allocate and release in random order: no address has two
// holders, and no address leaks.
func TestProcessesShareAPool(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/28")
	processes := []Pool{p, p, p}
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
				t.Fatalf("the address %s of %s was allocated to %s, too", ips[0], other.Container, h.Container)
			}
			want[ips[0]] = h
		} else if !errors.Is(err, errPoolEmpty) || len(want) != 13 {
			t.Fatalf("%v with %d in use", err, len(want))
		}
		holders, err := p.Holders()
		if diff := cmp.Diff(want, holders, cmpopts.EquateComparable(netip.Addr{}, Holder{}.Pod),
			cmpopts.IgnoreUnexported(Holder{})); err != nil || diff != "" {
			t.Fatalf("step %d: %v %s", i, err, diff)
		}
	}
}

// Release works on a full disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	p := testPool(t, "10.88.7.0/29")
	if err := unix.Mount("tmpfs", p.Dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("skipped: cannot mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(p.Dir, unix.MNT_DETACH) })
	if err := os.Mkdir(p.Folder(), 0o700); err != nil {
		t.Fatal(err)
	}
	a := mustAllocate(t, p, alive("a"))
	gone := mustAllocate(t, p, Holder{Container: "gone", IfName: "eth0", Netns: "/nowhere", Boot: "b"})
	mustAllocate(t, p, alive("b"))
	for what, release := range map[string]func() error{
		a:    func() error { return p.Release("a", "eth0", nil) },
		gone: func() error { return p.Reclaim(func(func(netip.Addr) bool) error { return nil }) },
	} {
		fill(t, p.Dir)
		if ips, err := p.Allocate(alive("c")); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("allocated %v on a full disk, error %v", ips, err)
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
		got = append(got, mustAllocate(t, p, alive(c)))
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
