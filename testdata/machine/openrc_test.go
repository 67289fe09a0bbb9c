package machine_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

// cannot is the exit code of testdata/openrc.sh if OpenRC cannot run on this machine.
const cannot = 77

// TestOpenRC installs, restarts, upgrades and removes monopod with a real OpenRC.
func TestOpenRC(t *testing.T) {
	for _, program := range []string{"apt-get", "dpkg-deb", "unshare", "ip", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: %s is not installed", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("skipped: namespaces and mounts need root")
	}
	programs := harness.Build(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "mprc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The root of the machine may be an overlay, which cannot contain the upper folder of another overlay.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size=1g"); err != nil {
		t.Skip("skipped: cannot mount a file system: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	program := programs.Monopod(harness.Plain)
	content, err := os.ReadFile(program)
	newer, broken := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	err = errors.Join(err, os.WriteFile(newer, append(content, '\n'), 0o755),
		os.WriteFile(broken,
			[]byte("#!/bin/sh\nif [ \"$1\" = serve ]; then echo it is broken >&2; exit 1; fi\nexec /opt/test/program \"$@\"\n"),
			0o755))
	if err != nil {
		t.Fatal(err)
	}
	// The script has waits without a timeout.
	ctx, cancel := context.WithTimeout(t.Context(), harness.Scaled(5*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", programs.Source("testdata/openrc.sh"), "run", dir, program, newer, broken)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == cannot {
		t.Skipf("skipped: OpenRC cannot run here: %s", out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
