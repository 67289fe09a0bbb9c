package stream

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

const (
	terminalPause = 20 * time.Millisecond // between attempts to find the process
	terminalStart = 5 * time.Second       // limit for finding the process
	terminalEnd   = 2 * time.Second       // from SIGHUP to SIGKILL
)

// terminal calls start, which begins an exec with a terminal, and hangs up its process when ctx ends. The runtime does
// not do that, and a shell would run in the container for good.
func (s *Streams) terminal(ctx context.Context, container string, start func() (*url.URL, error)) (*url.URL, error) {
	select {
	case s.terminals <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	begun := false
	defer func() {
		if !begun {
			<-s.terminals
		}
	}()
	before, err := s.deps.Runtime.Execs(ctx, container)
	if err != nil { // the runtime cannot list processes
		return start()
	}
	to, err := start()
	if err != nil {
		return nil, err
	}
	begun = true
	s.deps.Guard.Spawn("terminal", func() {
		// Find the process even if the client leaves before.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminalStart)
		p, found := s.awaitProcess(limited, container, before)
		cancel()
		if <-s.terminals; !found {
			return
		}
		<-ctx.Done()
		s.hangUp(context.WithoutCancel(ctx), container, p)
	})
	return to, nil
}

// awaitProcess waits for a process with a terminal that is not in before.
func (s *Streams) awaitProcess(ctx context.Context, container string,
	before []runtime.Process) (runtime.Process, bool) {
	for {
		now, err := s.deps.Runtime.Execs(ctx, container)
		for _, p := range now {
			if err == nil && !slices.Contains(before, p) && onTerminal(p.PID) {
				return p, true
			}
		}
		if !backoff.Sleep(ctx, s.deps.Clock, terminalPause) {
			return runtime.Process{}, false
		}
	}
}

// onTerminal reports whether a process reads from a terminal.
func onTerminal(pid int) bool {
	tty, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", pid))
	return err == nil && strings.HasPrefix(tty, "/dev/pts/")
}

// hangUp ends a process if it still runs: with SIGHUP, like a terminal that is closed, then with SIGKILL. When it ends,
// the kernel hangs up its foreground processes.
func (s *Streams) hangUp(ctx context.Context, container string, p runtime.Process) {
	for _, signal := range []unix.Signal{unix.SIGHUP, unix.SIGKILL} {
		now, err := s.deps.Runtime.Execs(ctx, container)
		if err != nil || !slices.Contains(now, p) || unix.Kill(p.PID, signal) != nil {
			return
		}
		_ = backoff.Sleep(ctx, s.deps.Clock, terminalEnd)
	}
}
