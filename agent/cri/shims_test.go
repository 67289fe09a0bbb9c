package cri

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// A shim that never made its container ends; one that did, and one of another
// containerd, stay.
func TestShimsThatMadeNothingEnd(t *testing.T) {
	l := newLayout(t.TempDir())
	c := &Child{layout: l, config: ChildConfig{Log: zap.NewNop(), Clock: clock.RealClock{}}}
	made := filepath.Join(l.state, "io.containerd.runtime.v2.task", "k8s.io", "made")
	if err := os.MkdirAll(made, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(made, "init.pid"), []byte("1"), 0o644); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(l.state, "io.containerd.runtime.v2.task", "k8s.io", "half")
	if err := errors.Join(os.MkdirAll(half, 0o755), os.WriteFile(filepath.Join(made, "runtime"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	// A shell that waits for its input and starts nothing.
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", "read x", "shim"}, args...)...)
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
	orphan := start("-id", "none", "-address", l.socket)
	keeper := start("-id", "made", "-address", l.socket)
	stranger := start("-id", "none", "-address", "/elsewhere.sock")
	if err := c.endShims(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state, err := orphan.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the orphan: %v, %v", state, err)
	}
	if left, _ := filepath.Glob(filepath.Dir(made) + "/*"); len(left) != 1 {
		t.Errorf("folders: %v, want only %s", left, made)
	}
	for _, cmd := range []*exec.Cmd{keeper, stranger} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%v: %v", cmd.Args, err)
		}
	}
}
