package entry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
)

// On a full disk a server starts with the files that exist, and reports those that it could not update.
func TestAccessOnFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("skipped: no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	first := openAccess(t, dir, now)
	if len(first.Problems) > 0 {
		t.Errorf("problems with an empty disk: %v", first.Problems)
	}
	before := kubeconfig(t, dir)
	fillUp(t, dir)

	for _, now := range []time.Time{now, now.AddDate(9, 0, 0)} { // nine years later the admin's certificate is renewed
		again := openAccess(t, dir, now) // on another port, which the kubeconfig should contain
		if !bytes.Equal(again.CA, first.CA) {
			t.Error("the CA certificates changed")
		}
		if len(again.Problems) == 0 || !strings.Contains(again.Problems[len(again.Problems)-1].Error(), "admin.kubeconfig") {
			t.Errorf("problems: %v", again.Problems)
		}
	}
	if !bytes.Equal(kubeconfig(t, dir), before) {
		t.Error("the kubeconfig changed")
	}
}

// openAccess opens an Entry and closes it again.
func openAccess(t *testing.T, dir string, now time.Time) *Entry {
	t.Helper()
	a, err := Open(Config{Dir: dir, Listen: "127.0.0.1:0", Node: "n1", Clock: clocktesting.NewFakeClock(now)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.tcp.Close(), a.unix.Close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

func kubeconfig(t *testing.T, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fillUp fills the disk.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
}
