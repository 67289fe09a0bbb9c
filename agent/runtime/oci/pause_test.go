package oci

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"monopod/testdata/harness"
)

// buildFlags are the compiler flags in the header of pause.c.
const buildFlags = "-Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables " +
	"-fno-pie -no-pie -Wl,--build-id=none -Wl,-n -Wl,-z,noexecstack -s"

func TestPauseIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	harness.Freestanding(t, buildFlags, "pause/pause.c", 1024, func(arch string) []byte {
		program, _ := pauseProgram(arch) // nil: no program for this architecture
		return program
	})
}

func TestPauseEndsOnSignals(t *testing.T) {
	t.Parallel()
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		t.Skip("skipped: no pause program for this architecture:", err)
	}
	path := filepath.Join(t.TempDir(), "pause")
	syscall.ForkLock.RLock() // a process that is forked meanwhile would keep the program open for writing
	err = os.WriteFile(path, program, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	leavesOnSignal(t, path)
}

// leavesOnSignal starts the program as PID 1 of a new PID namespace if possible, as in a sandbox, and checks that it
// exits with 0 on SIGTERM and SIGINT.
func leavesOnSignal(t *testing.T, program string) {
	t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.CommandContext(t.Context(), program)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitAsleep(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %s: %v, want exit code 0", sig, err)
		}
	}
}

// waitAsleep waits until the process sleeps, which it does only when it waits for signals.
func waitAsleep(t *testing.T, pid int) {
	t.Helper()
	if !harness.Eventually(harness.Enough, func() bool {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(data), "State:\tS")
	}) {
		t.Fatal("timeout: the program does not wait for signals")
	}
}
