package containerd

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/agent/host/mount"
	"monopod/agent/runtime/cri"
)

// endOrphanedShims kills shims without containers, even if they hang, but neither shims with containers nor shims of
// another containerd.
func TestEmptyShimsEnd(t *testing.T) {
	l := newLayout(t.TempDir())
	c := &Child{layout: l, config: Config{Log: zap.NewNop(), Clock: clock.RealClock{}}}
	made := filepath.Join(l.state, "io.containerd.runtime.v2.task", "k8s.io", "made")
	if err := os.MkdirAll(made, 0o755); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(l.state, "io.containerd.runtime.v2.task", "k8s.io", "half")
	if err := errors.Join(os.MkdirAll(half, 0o755), os.WriteFile(filepath.Join(made, "runtime"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	// start starts a shell that waits for its input, as a fake shim.
	start := func(script string, args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", script, "shim"}, args...)...)
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stdin.Close()
			_ = cmd.Wait()
		})
		return cmd
	}
	orphan := start("read x", "-id", "none", "-address", l.socket)
	hung := start("true & read x", "-id", "none", "-address", l.socket)
	keeper := start("cat; :", "-id", "made", "-address", l.socket)
	stranger := start("read x", "-id", "none", "-address", "/elsewhere.sock")
	for !hasZombie(t, hung.Process.Pid) {
	}
	for { // until the child process of keeper runs
		if shims, err := c.shims(); err != nil || slices.ContainsFunc(shims, func(s cri.Shim) bool { return !s.Empty }) {
			break
		}
	}
	if err := c.endOrphanedShims(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, cmd := range map[string]*exec.Cmd{"orphan": orphan, "hung shim": hung} {
		if state, err := cmd.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the %s was not killed: %v, %v", name, state, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Dir(made) + "/*"); len(left) != 1 {
		t.Errorf("folders left: %v, want only %s", left, made)
	}
	for _, cmd := range []*exec.Cmd{keeper, stranger} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the shim %v does not run: %v", cmd.Args, err)
		}
	}
}

// hasZombie reports whether a process has a zombie child.
func hasZombie(t *testing.T, pid int) bool {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(p procfs.Proc) bool {
		stat, err := p.Stat()
		return err == nil && stat.PPID == pid && stat.State == "Z"
	})
}

// TestDiscardEndsShims checks that Discard kills a shim without a pod that outlives containerd.
func TestDiscardEndsShims(t *testing.T) {
	t.Parallel()
	l := newLayout(t.TempDir())
	c := &Child{layout: l, config: Config{Log: zap.NewNop(), Clock: clock.RealClock{}}}
	hung := exec.Command("sh", "-c", "read x", "shim", "-id", "gone", "-address", l.socket)
	stdin, err := hung.StdinPipe()
	if err == nil {
		err = hung.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := c.Discard(); err != nil {
		t.Error(err)
	}
	if state, err := hung.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the shim was not killed: %v, %v", state, err)
	}
}

// removeStateOfEarlierBoot removes the state of an earlier boot, but never through a mount, even if the kernel escapes
// the path of the mount.
func TestMountedStateIsKept(t *testing.T) {
	t.Parallel()
	l := newLayout(filepath.Join(t.TempDir(), "of a\tpod\n\\"))
	c := &Child{layout: l, config: Config{Log: zap.NewNop()}}
	dir := filepath.Join(l.state, "rootfs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (mount.Kernel{}).Tmpfs(dir, mount.Tmpfs{Mode: 0o755}); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = mount.Kernel{}.Unmount(dir) })
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the state of an unknown boot, and of this boot
		if err := c.removeStateOfEarlierBoot(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(mount.Kernel{}.Unmount(dir), os.Remove(l.boot), c.removeStateOfEarlierBoot()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state of an earlier boot still exists: %v", err)
	}
}
