package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/guard"
)

// WatchUsage calls passed when the memory usage of all processes has grown by the last value from left, in bytes, until
// ctx ends. A value of 0 or less disables it until the next value. It fails without cgroup v1. It occupies no thread
// while it waits.
func WatchUsage(ctx context.Context, left <-chan int64, passed func()) error {
	return watchUsage(ctx, "/sys/fs/cgroup/memory", left, passed)
}

func watchUsage(ctx context.Context, dir string, left <-chan int64, passed func()) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.event_control")); err != nil {
		return err
	}
	var armed *usageEvent
	defer func() { armed.drop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-armed.reached():
			armed.drop()
			armed = nil
			passed()
		case more := <-left:
			armed.drop()
			armed = nil
			if more <= 0 {
				continue
			}
			var err error
			if armed, err = newUsageEvent(dir, more); err != nil {
				return err
			}
		}
	}
}

// usageEvent is a notification that is requested from the kernel; nil: none.
type usageEvent struct {
	file *os.File      // an eventfd
	done chan struct{} // closed when the notification has arrived, or was cancelled
}

// newUsageEvent requests a notification when usage has grown by more bytes.
func newUsageEvent(dir string, more int64) (*usageEvent, error) {
	usage, err := os.Open(filepath.Join(dir, "memory.usage_in_bytes"))
	if err != nil {
		return nil, err
	}
	defer usage.Close()
	var text [32]byte
	n, err := usage.Read(text[:])
	if err != nil {
		return nil, err
	}
	now, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", usage.Name(), err)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	b := &usageEvent{file: os.NewFile(uintptr(fd), "eventfd"), done: make(chan struct{})}
	order := fmt.Sprintf("%d %d %d", fd, usage.Fd(), now+more)
	var waiter *guard.Guard // reading a file does not panic
	waiter.Spawn("memory", b.wait)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(order), 0); err != nil {
		b.drop()
		return nil, errors.Join(errors.New("request a notification of memory usage"), err)
	}
	return b, nil
}

// wait sleeps in the poller until the kernel increments the eventfd.
func (b *usageEvent) wait() {
	defer close(b.done)
	var count [8]byte
	_, _ = b.file.Read(count[:]) // fails after drop
}

func (b *usageEvent) reached() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.done
}

// drop cancels the request and waits for the reader.
func (b *usageEvent) drop() {
	if b == nil {
		return
	}
	b.file.Close()
	<-b.done
}
