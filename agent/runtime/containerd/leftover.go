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
	whole := file + ".new" // no reader sees a partial file
	if err := os.WriteFile(whole, fmt.Appendf(nil, "%d %s\n", pid, start), 0o600); err != nil {
		return err
	}
	return os.Rename(whole, file)
}

// readPID finds the process of the file, if it still runs.
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

// startTime is field 22 of /proc/<pid>/stat (proc(5)); the command in field 2 may
// hold anything but is the last thing in parentheses. A zombie has ended.
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

// stopLeftover kills the containerd of a killed monopod, if it has outlived it, because
// its config may be outdated. Pods are not affected.
func (c *Child) stopLeftover(ctx context.Context) error {
	p, runs := readPID(c.layout.pid)
	if !runs {
		return nil
	}
	if err := unix.Kill(p.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop the containerd of an earlier run: %w", err)
	}
	const tick = 5 * time.Millisecond
	for range stopping / tick {
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
