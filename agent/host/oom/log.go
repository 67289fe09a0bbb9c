package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxRecord is the maximum size of a record of /dev/kmsg.
	maxRecord = 8192
	// maxKills is the number of kills that are kept for Killed.
	maxKills = 128
	// watcherBuffer is the buffer of a watcher's channel. A slow watcher misses further kills.
	watcherBuffer = 32
	// pidReuseTime is the time in which the kernel does not reuse the ID of a dead process.
	pidReuseTime = time.Minute
)

// Log is the kernel's log since it was opened. A nil Log has no kills.
type Log struct {
	file *os.File
	conn syscall.RawConn

	mu       sync.Mutex // guards the fields below; held while reading, which never blocks
	parser   parser
	kills    []Kill
	watchers []chan Kill
}

// Open opens the log, /dev/kmsg. It fails without permission to read it.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, unix.ESPIPE) {
		f.Close()
		return nil, err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Log{file: f, conn: conn}, nil
}

// Run sends kills to watchers until ctx ends, and closes the log. It occupies no thread while it waits.
func (l *Log) Run(ctx context.Context) error {
	if l == nil {
		return nil
	}
	defer l.file.Close()
	defer context.AfterFunc(ctx, func() { l.file.Close() })()
	var failed error
	err := l.conn.Read(func(fd uintptr) (done bool) {
		failed = l.drain(int(fd))
		return failed != nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read the kernel's log: %w", errors.Join(err, failed))
}

// Watch returns a channel that receives the kills from now on. It is closed when ctx ends.
func (l *Log) Watch(ctx context.Context) <-chan Kill {
	kills := make(chan Kill, watcherBuffer)
	if l == nil {
		context.AfterFunc(ctx, func() { close(kills) })
		return kills
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, kills)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.watchers = slices.DeleteFunc(l.watchers, func(c chan Kill) bool { return c == kills })
		close(kills)
	})
	return kills
}

// Killed reports whether the OOM killer ended a process of a cgroup whose path contains cgroup or, within the last
// minute, the process pid (0: none). The kernel logs a kill before the process is dead, so the result after the exit of
// a container is reliable.
func (l *Log) Killed(cgroup string, pid int) bool {
	if l == nil {
		return false
	}
	// Read the pending records. It fails after the end of Run.
	_ = l.conn.Control(func(fd uintptr) { _ = l.drain(int(fd)) })
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.kills, func(k Kill) bool {
		return strings.Contains(k.Cgroup, cgroup) || pid != 0 && k.PID == pid && time.Since(k.At) < pidReuseTime
	})
}

// drain reads all available records. Overwritten records are lost.
func (l *Log) drain(fd int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var buf [maxRecord]byte
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return io.EOF
		}
		if k, ok := l.parser.line(string(buf[:n])); ok {
			l.add(k)
		}
	}
}

// add adds a kill. The caller holds mu.
func (l *Log) add(k Kill) {
	k.At = time.Now()
	l.kills = append(l.kills, k)
	if over := len(l.kills) - maxKills; over > 0 {
		l.kills = slices.Delete(l.kills, 0, over)
	}
	for _, r := range l.watchers {
		select {
		case r <- k:
		default:
		}
	}
}
