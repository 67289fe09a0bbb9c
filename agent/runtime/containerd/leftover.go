package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process identifies a process by PID and start time (in clock ticks after boot),
// because the PID may have been reused.
type process struct {
	pid   int
	start string
}

func writePID(file string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	temp := file + ".new" // no reader sees a partial file
	if err := os.WriteFile(temp, fmt.Appendf(nil, "%d %s\n", pid, start), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, file)
}

// readPID returns the process that writePID recorded, and whether it still runs.
func readPID(file string) (process, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return process{}, false
	}
	var p process
	if n, _ := fmt.Sscan(string(data), &p.pid, &p.start); n != 2 {
		return process{}, false
	}
	return p, p.runs()
}

func (p process) runs() bool {
	start, err := startTime(p.pid)
	return err == nil && start == p.start
}

// startTime returns field 22 of /proc/<pid>/stat (proc(5)). It counts from the last parenthesis, because the command in
// field 2 may contain spaces and parentheses. A zombie counts as ended.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	stat := string(data)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0] == "Z" {
		return "", fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return fields[19], nil
}

// stopLeftover kills a containerd that has outlived its monopod, because its configuration may be outdated. Pods are
// not affected.
func (c *Child) stopLeftover(ctx context.Context) error {
	p, runs := readPID(c.layout.pid)
	if !runs {
		return nil
	}
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop the containerd of an earlier run: %w", err)
	}
	const tick = 5 * time.Millisecond
	for range stopTimeout / tick {
		if !p.runs() {
			return nil
		}
		select {
		case <-c.config.Clock.After(tick):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("the containerd of an earlier run does not end: process %d", p.pid)
}
