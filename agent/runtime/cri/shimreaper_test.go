package cri

import (
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// The reaper kills the shim of a removed sandbox if it does not exit by itself, but no other shim.
func TestShimReaper(t *testing.T) {
	t.Parallel()
	start := func(id string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", "read x", "shim", "-namespace", Namespace, "-id", id)
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
	gone, lives := uuid.NewString(), uuid.NewString()
	hung, kept := start(gone), start(lives)
	if err := hung.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &shimReaper{clock: clock.RealClock{}, log: zap.NewNop()}
		s.add(t.Context(), gone)
		s.add(t.Context(), uuid.NewString()) // its shim has already exited
		s.wg.Wait()
	})
	if state, err := hung.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the hung shim was not killed: %v, %v", state, err)
	}
	if err := kept.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the shim of another sandbox does not run: %v", err)
	}
}
