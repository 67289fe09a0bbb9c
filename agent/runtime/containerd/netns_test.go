package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A containerd that was killed may leave namespace files without a mount, or with a namespace without processes.
func TestNamespacesWithoutProcessesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "io.containerd.grpc.v1.cri", "netns")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lived, unmounted, empty := filepath.Join(dir, "cni-1"), filepath.Join(dir, "cni-2"), filepath.Join(dir, "cni-3")
	for _, file := range []string{lived, unmounted, empty} {
		if err := os.WriteFile(file, nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("/proc/self/ns/net", lived, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(lived, unix.MNT_DETACH) })
	tenant := exec.Command("sleep", "60")
	tenant.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := tenant.Start(); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", tenant.Process.Pid), empty, "", unix.MS_BIND, "")
	_ = errors.Join(tenant.Process.Kill(), tenant.Wait()) // then the namespace has no process
	if err != nil {
		t.Fatal(err)
	}
	c := &Child{layout: layout{state: filepath.Dir(filepath.Dir(dir))}}
	if err := c.removeOrphanedNamespaces(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{unmounted, empty} {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the namespace file %s still exists, error %v", file, err)
		}
	}
	if id, ok := namespaceOf(lived); !ok || id.inode == 0 {
		t.Error("the namespace of this process was unmounted")
	}
}
