package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

// kernelV1 creates a folder like one of cgroup v1, with a pipe as cgroup.event_control.
func kernelV1(t *testing.T, usage string) (dir string, asked *os.File) {
	t.Helper()
	dir = t.TempDir()
	control := filepath.Join(dir, "cgroup.event_control")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "memory.usage_in_bytes"), []byte(usage), 0o600),
		unix.Mkfifo(control, 0o600)); err != nil {
		t.Fatal(err)
	}
	asked, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { asked.Close() })
	return dir, asked
}

func TestWatchUsage(t *testing.T) {
	t.Parallel()
	dir, asked := kernelV1(t, "1000\n")
	ctx, cancel := context.WithCancel(t.Context())
	left, passed, ended := make(chan int64), make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- watchUsage(ctx, dir, left, func() { passed <- struct{}{} }) }()

	var event, usage, at int
	for _, more := range []int64{500, 700} { // the second threshold replaces the first
		left <- more
		var text [64]byte
		n, err := asked.Read(text[:])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(text[:n]), &event, &usage, &at); err != nil || at != 1000+int(more) {
			t.Fatalf("wrote %q to cgroup.event_control, error %v", text[:n], err)
		}
	}
	if _, err := unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-passed:
	case <-time.After(harness.Bound):
		t.Fatal("no notification")
	}
	left <- 0 // without a threshold
	left <- 900
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(passed) > 0 {
		t.Error("more than one notification")
	}
}

func TestWatchUsageWithoutNotification(t *testing.T) {
	t.Parallel()
	if err := watchUsage(t.Context(), t.TempDir(), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// The kernel, if it supports thresholds and permits creating a cgroup, notifies when a process in the cgroup uses
// memory.
func TestWatchUsageOfTheKernel(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/sys/fs/cgroup/memory", "monopod-test-")
	if err != nil {
		t.Skipf("skipped: cannot create a cgroup: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left, passed, ended := make(chan int64), make(chan struct{}, 1), make(chan error, 1)
	go func() { ended <- watchUsage(ctx, dir, left, func() { passed <- struct{}{} }) }()
	left <- 16 << 20
	left <- 24 << 20 // blocks until the first threshold is set
	left <- 24 << 20
	cmd := exec.CommandContext(ctx, "sh", "-c",
		"echo $$ >$0/cgroup.procs && exec dd if=/dev/zero of=/dev/null bs=64M count=1", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	select {
	case <-passed:
	case <-time.After(harness.Bound):
		t.Error("no notification although the process used 64 MiB")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// The kernel removes the dead process from the cgroup a moment later.
	if !harness.Eventually(harness.Enough, func() bool { err = os.Remove(dir); return err == nil }) {
		t.Error(err)
	}
}
