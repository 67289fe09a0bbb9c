package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"monopod/apiserver/kit/guard"
)

const (
	maxTerminals  = 8                // open at once
	terminalIdle  = 4 * time.Hour    // kubelet's streamingConnectionIdleTimeout
	terminalStart = 30 * time.Second // for a client to open its streams
	hangupTime    = 2 * time.Second  // from SIGHUP to SIGKILL
)

// terminals serves login shells on this machine, as the user of this process and in its cgroup. A request without an
// upgrade only tells that they are served.
func terminals() http.HandlerFunc {
	open := make(chan struct{}, maxTerminals)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintln(w, "This node serves terminals.")
			return
		}
		select {
		case open <- struct{}{}:
			defer func() { <-open }()
			var inputs guard.Group
			opts := &remotecommand.Options{Stdin: true, Stdout: true, TTY: true}
			remotecommand.ServeExec(w, r, shell{&inputs}, "", "", "", nil, opts, terminalIdle, terminalStart,
				remotecommand.SupportedStreamingProtocols)
			guard.Raise(inputs.Wait())
		default:
			http.Error(w, fmt.Sprintf("%d terminals are open; close one", maxTerminals), http.StatusTooManyRequests)
		}
	}
}

// shell runs a login shell instead of a command in a container.
type shell struct {
	inputs *guard.Group // goroutines that end with the client's connection
}

var _ remotecommand.Executor = shell{}

// ExecInContainer implements remotecommand.Executor. The shell ends when the client leaves.
func (s shell) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, _ io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, loginShell(), "-l")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Dir = "/"
	if home, err := os.UserHomeDir(); err == nil {
		cmd.Dir = home
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGHUP) }
	cmd.WaitDelay = hangupTime
	terminal, err := pty.Start(cmd)
	if err != nil {
		return fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	defer context.AfterFunc(ctx, func() { terminal.Close() })() // hangs up what runs in the foreground
	control, err := terminal.SyscallConn()                      // which Close does not race with
	if err != nil {
		return errors.Join(err, terminal.Close(), cmd.Wait())
	}
	s.inputs.Do(func() error {
		defer cancel()
		_, _ = io.Copy(terminal, in) // ends with either side
		return nil
	})
	s.inputs.Do(func() error {
		for size := range resize {
			_ = control.Control(func(fd uintptr) { // fails if it is closed
				_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
			})
		}
		return nil
	})
	_, _ = io.Copy(out, terminal) // EIO when no process has the terminal any more
	err = cmd.Wait()
	terminal.Close()
	if ctx.Err() != nil {
		return nil // the client has left
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// loginShell returns the shell of the user of this process.
func loginShell() string {
	for _, path := range []string{os.Getenv("SHELL"), "/bin/bash"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "/bin/sh"
}
