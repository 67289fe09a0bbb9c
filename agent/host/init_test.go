package host_test

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/agent/host"
)

const asInit = "MONOPOD_TEST_AS_INIT"

// As PID 1 of a container, RunAsInit reaps orphans, forwards signals and returns the exit code of its child.
func TestRunAsInit(t *testing.T) {
	if os.Getenv(asInit) != "" {
		if code, ran := host.RunAsInit(); ran {
			os.Exit(code)
		}
		os.Exit(orphan())
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: a PID namespace needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRunAsInit$")
	cmd.Env = append(os.Environ(), asInit+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 42 {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

// orphan leaves an orphaned process and waits until PID 1 reaps it. Then it sends SIGTERM to PID 1 and waits for the
// forwarded signal. It returns 42 on success.
func orphan() int {
	out, err := exec.Command("sh", "-c", "true & echo $!").Output()
	if err != nil {
		return 1
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 2
	}
	for end := time.Now().Add(10 * time.Second); unix.Kill(pid, 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return 3
		}
	}
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGTERM)
	if os.Getppid() != 1 || unix.Kill(1, unix.SIGTERM) != nil {
		return 4
	}
	select {
	case <-received:
		return 42
	case <-time.After(10 * time.Second):
		return 5
	}
}
