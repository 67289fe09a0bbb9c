// Package clockset tells when the wall clock has jumped: when it was set, and when the
// machine wakes up after it has slept. Timers of Go follow the monotonic clock, which
// notices neither.
package clockset

import (
	"context"
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"monopod/apiserver/process/guard"
)

// Watch sends after each jump of the wall clock, and closes the channel when ctx ends.
// Jumps that follow each other before they are received are one. A kernel that cannot tell
// (Linux can since 3.0) never sends. Nothing runs meanwhile: the kernel cancels a timer of
// the wall clock that never expires.
func Watch(ctx context.Context) <-chan struct{} {
	jumps := make(chan struct{}, 1)
	timer, err := newTimer()
	if err != nil {
		context.AfterFunc(ctx, func() { close(jumps) })
		return jumps
	}
	stop := context.AfterFunc(ctx, func() { timer.Close() })
	guard.Spawn(func() error {
		defer close(jumps)
		defer timer.Close()
		defer stop()
		for timer.wait() {
			select {
			case jumps <- struct{}{}:
			default:
			}
		}
		return nil
	})
	return jumps
}

// timer is a timerfd of CLOCK_REALTIME.
type timer struct{ *os.File }

func newTimer() (timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return timer{}, err
	}
	t := timer{os.NewFile(uintptr(fd), "timerfd")}
	if err := t.arm(); err != nil {
		t.Close()
		return timer{}, err
	}
	return t, nil
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
