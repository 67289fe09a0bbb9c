package cmd

import (
	"errors"
	"os/exec"
	"testing"

	"monopod/agent/cmd/commandline"
)

func TestRunExitCode(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -KILL $$": 137, "kill -TERM $$": 143} {
		cmd := exec.Command("sh", "-c", script)
		_ = cmd.Run() // the test uses cmd.ProcessState
		if got := exitCode(cmd.ProcessState); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
	}
}

func TestACommandThatCannotRun(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/no/such/program": 127, "no-such-program": 127, "/": 126} {
		exit := (*commandline.Exit)(nil)
		if _, err := exec.LookPath(path); !errors.As(cannotRun(err), &exit) || exit.Code != want {
			t.Errorf("%s: %v, exit code %d, want %d", path, err, exit.Code, want)
		}
	}
}
