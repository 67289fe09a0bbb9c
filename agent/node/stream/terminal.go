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

// How the process of a terminal is found, and ended.
const (
	terminalPause = 20 * time.Millisecond
	terminalStart = 5 * time.Second // to find it
	terminalEnd   = 2 * time.Second // from SIGHUP to SIGKILL
)

// terminal calls start, and hangs up the process that it has begun when ctx ends: the runtime does not, and a shell
// would stay in the container for good.
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
	if err != nil { // the runtime has no processes
		return start()
	}
	to, err := start()
	if err != nil {
		return nil, err
	}
	begun = true
	s.deps.Guard.Spawn("terminal", func() {
		// Also if the client leaves before the process is found.
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

// awaitProcess waits for the process with a terminal that was not there before.
func (s *Streams) awaitProcess(ctx context.Context, container string, before []runtime.Process) (runtime.Process, bool) {
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

// hangUp ends a process if it still runs: with SIGHUP as a terminal that is closed, then by force. The kernel hangs
// up what it runs in the foreground.
func (s *Streams) hangUp(ctx context.Context, container string, p runtime.Process) {
	for _, signal := range []unix.Signal{unix.SIGHUP, unix.SIGKILL} {
		now, err := s.deps.Runtime.Execs(ctx, container)
		if err != nil || !slices.Contains(now, p) || unix.Kill(p.PID, signal) != nil {
			return
		}
		_ = backoff.Sleep(ctx, s.deps.Clock, terminalEnd)
	}
}
