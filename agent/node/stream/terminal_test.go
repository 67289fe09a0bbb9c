package stream_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
)

// onTerminal starts a process on a new terminal, and waits for its first output.
func onTerminal(t *testing.T, command ...string) *exec.Cmd {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin = slave
	cmd.Stdout = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := master.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// TestClientLeavesTerminal checks that the process on the terminal of a client that disconnects gets SIGHUP, and
// SIGKILL if it ignores SIGHUP. Other processes keep running.
func TestClientLeavesTerminal(t *testing.T) {
	t.Parallel()
	// With a handler, child processes do not inherit an ignored SIGHUP, for instance from nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	for name, c := range map[string]struct {
		command []string
		ended   syscall.Signal
	}{
		"default":        {[]string{"sh", "-c", "echo; exec sleep 3600"}, syscall.SIGHUP},
		"ignores SIGHUP": {[]string{"sh", "-c", `trap "" HUP; echo; sleep 3600; :`}, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			other, left := onTerminal(t, "sh", "-c", "echo; exec sleep 3600"), onTerminal(t, c.command...)
			w, calls := newWorld(t, status.Container{ID: "3", Name: "c", State: status.Running}), 0
			w.execs = func() ([]runtime.Process, error) {
				all := []runtime.Process{{ID: "other", PID: other.Process.Pid}, {ID: "none", PID: os.Getpid()},
					{ID: "left", PID: left.Process.Pid}}
				if calls++; calls == 1 {
					return all[:1], nil // before the start of the process
				}
				cancel() // the client disconnects at once
				return all, nil
			}
			if _, err := w.streams().Exec(ctx, pod(),
				&corev1.PodExecOptions{Container: "c", TTY: true, Stdin: true}); err != nil {
				t.Fatal(err)
			}
			_ = left.Wait()
			if got := left.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != c.ended {
				t.Errorf("the process was terminated by %v, want %v", got.Signal(), c.ended)
			}
			if err := other.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the other process does not run: %v", err)
			}
			_ = other.Process.Kill()
			_ = other.Wait()
		})
	}
}
