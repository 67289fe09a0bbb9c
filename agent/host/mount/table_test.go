package mount

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// statx and the mount table agree about whether a folder is the root of a mount.
func TestMountRoot(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with \\ and\ta tab,\n a line")
	for _, d := range []string{"tmpfs", "bind", "plain"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Kernel{}).Tmpfs(dir+"/tmpfs", Tmpfs{Mode: 0o755}); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	if err := unix.Mount(dir+"/plain", dir+"/bind", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"tmpfs": true, "bind": true, "plain": false} {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		quick, err1 := mountRoot(fd)
		table, err2 := inTable(fd)
		if err1 != nil || err2 != nil || quick != want || table != want {
			t.Errorf("%s: statx says %v, error %v; the mount table says %v, error %v", name, quick, err1, table, err2)
		}
		unix.Close(fd)
	}
	if err := RemoveAll(dir, Kernel{}); err != nil {
		t.Error(err)
	}
}
