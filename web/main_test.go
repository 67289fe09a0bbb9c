package web_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// alone is the environment variable of a process in a network namespace of its own.
const alone = "MONOPOD_TEST_NETWORK"

// TestMain runs the tests in a network namespace: a browser drops its connections when the machine's network changes,
// as it does while other tests start pods.
func TestMain(m *testing.M) {
	switch {
	case os.Getuid() != 0: // other tests start no pods either
		os.Exit(m.Run())
	case os.Getenv(alone) == "":
		os.Exit(again())
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot set up loopback of the tests' network namespace:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// again runs this program in a network namespace of its own, and returns its exit code.
func again() int {
	runtime.LockOSThread() // Pdeathsig refers to the thread
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), alone+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "cannot run the tests in a network namespace:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}
