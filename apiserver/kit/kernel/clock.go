// Package kernel reports changes that the kernel announces, as channels: the addresses and routes of this machine, and
// jumps of the wall clock, when it is set and when the machine wakes up from sleep. Timers of Go follow the monotonic
// clock, which has no such jumps.
package kernel

import (
	"context"
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// WatchClock sends after each jump of the wall clock (Linux 3.0 or later), as kernel.Watch describes: the kernel
// cancels a timer of the wall clock that never expires.
func WatchClock(ctx context.Context) <-chan struct{} {
	return Watch(ctx, newTimer, func(f *os.File) bool { return timer{f}.wait() })
}

// timer is a timerfd of CLOCK_REALTIME.
type timer struct{ *os.File }

func newTimer() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	t := timer{os.NewFile(uintptr(fd), "timerfd")}
	if err := t.arm(); err != nil {
		t.Close()
		return nil, err
	}
	return t.File, nil
}

// arm sets the timer to the end of time, and asks for a notification when the clock is set.
func (t timer) arm() error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt32}}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
	})
	return errors.Join(err, setErr)
}

// wait returns true after a jump, and false once the timer is closed.
func (t timer) wait() bool {
	var expirations [8]byte
	_, err := t.Read(expirations[:])
	if err != nil && !errors.Is(err, unix.ECANCELED) {
		return false
	}
	return t.arm() == nil
}
