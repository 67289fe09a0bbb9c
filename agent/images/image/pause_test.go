package image

import (
	"bytes"
	"debug/elf"
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

// buildFlags are those in the head of pause.c.
const buildFlags = "-Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables " +
	"-fno-pie -no-pie -Wl,--build-id=none -Wl,-n -Wl,-z,noexecstack -s"

func TestPauseIsStatic(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		data, err := pauseProgram(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != machine {
			t.Errorf("%s: machine %s", arch, f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s: needs a loader", arch)
			}
		}
	}
	if _, err := pauseProgram("mips"); err == nil {
		t.Error("a program for mips, which is not included")
	}
}

// The committed programs contain the code that the compilers make of pause.c.
func TestPauseIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			program, err := pauseProgram(arch)
			if err != nil {
				t.Fatal(err)
			}
			if built := harness.Compile(t, arch, buildFlags, "pause/pause.c"); !bytes.Equal(built, program) {
				t.Errorf("pause_%s is not what gcc makes of pause.c (%d and %d bytes)", arch, len(program), len(built))
			}
		})
	}
}

func TestPauseEndsOnSignals(t *testing.T) {
	t.Parallel()
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		t.Skip("no pause program for this machine:", err)
	}
	path := filepath.Join(t.TempDir(), "pause")
	syscall.ForkLock.RLock() // or a process that is forked meanwhile has the program open for writing
	err = os.WriteFile(path, program, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	leavesOnSignal(t, path)
}

// leavesOnSignal starts the program in its own PID namespace if possible, as in a sandbox, and checks that it
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
			t.Errorf("after %s: %v, want a clean end", sig, err)
		}
	}
}

// waitAsleep returns once the process sleeps, which it does only when it waits for signals.
func waitAsleep(t *testing.T, pid int) {
	t.Helper()
	if !harness.Eventually(harness.Enough, func() bool {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(status), "State:\tS")
	}) {
		t.Fatal("the program never came to wait")
	}
}
