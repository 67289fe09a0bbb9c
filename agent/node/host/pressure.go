package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryTrigger fires when some process waited 300 ms for memory within two seconds,
// the shortest window that needs no privilege.
const memoryTrigger = "some 300000 2000000"

// WatchMemory calls short when processes have to wait for memory, at most every two
// seconds, until ctx ends. It fails if the kernel does not support it (PSI,
// /proc/pressure/memory). The goroutine sleeps in the poller meanwhile.
func WatchMemory(ctx context.Context, short func()) error {
	return watchPressure(ctx, "/proc/pressure/memory", memoryTrigger, short)
}

func watchPressure(ctx context.Context, file, trigger string, notice func()) error {
	psi, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open "+file, err)
	}
	defer unix.Close(psi)
	if _, err := unix.Write(psi, append([]byte(trigger), 0)); err != nil {
		return os.NewSyscallError("write "+file, err)
	}
	// The notification is POLLPRI, which Go's poller does not wait for; an epoll instance becomes readable with
	// it.
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := errors.Join(unix.SetNonblock(fd, true), unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, psi, &unix.EpollEvent{Events: unix.EPOLLPRI, Fd: int32(psi)})); err != nil {
		unix.Close(fd)
		return fmt.Errorf("wait for memory pressure: %w", err)
	}
	poll := os.NewFile(uintptr(fd), file)
	defer poll.Close()
	defer context.AfterFunc(ctx, func() { poll.Close() })()
	return notices(ctx, poll, notice)
}

// notices calls notice each time poll becomes readable. Reading events would return none, because Go's poller
// has consumed the notification: the wakeup is all there is.
func notices(ctx context.Context, poll *os.File, notice func()) error {
	conn, err := poll.SyscallConn()
	if err != nil {
		return err
	}
	for {
		woken, failed := false, error(nil)
		err := conn.Read(func(fd uintptr) (done bool) {
			var events [1]unix.EpollEvent
			n, err := unix.EpollWait(int(fd), events[:], 0)
			switch {
			case err != nil && !errors.Is(err, unix.EINTR):
				failed = os.NewSyscallError("epoll_wait", err)
			case n > 0 && events[0].Events&unix.EPOLLERR != 0:
				failed = errors.New("the kernel ended its memory pressure notifications")
			}
			done = woken || n > 0 || failed != nil
			woken = true
			return done
		})
		if ctx.Err() != nil {
			return nil
		}
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		notice()
	}
}
