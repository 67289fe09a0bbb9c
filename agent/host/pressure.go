package host

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// memoryTrigger fires when processes waited 300 ms for memory within two seconds, the shortest window that needs no
// privilege.
const memoryTrigger = "some 300000 2000000"

// WatchMemory calls short when processes have to wait for memory, at most every two seconds, until ctx ends. It fails
// if the kernel does not support PSI (/proc/pressure/memory). It blocks one thread.
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
	// Closing the pipe wakes poll at the end of ctx. Go's own poller does not wait for POLLPRI.
	end, cancel, err := os.Pipe()
	if err != nil {
		return err
	}
	defer end.Close()
	defer cancel.Close()
	defer context.AfterFunc(ctx, func() { cancel.Close() })()
	for {
		files := []unix.PollFd{{Fd: int32(psi), Events: unix.POLLPRI}, {Fd: int32(end.Fd())}}
		_, err := unix.Poll(files, -1)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("poll "+file, err)
		case files[0].Revents&unix.POLLERR != 0:
			return errors.New("the kernel ended its memory pressure notifications")
		default:
			notice()
		}
	}
}
