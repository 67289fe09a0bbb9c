package frugal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"monopod/apiserver/process/kernelfile"
)

// Slack is how much longer than asked for the kernel lets a thread wait, in nanoseconds, so that it can end several waits
// at once: Linux' own, and that of a process that dozes.
const (
	usualSlack = 50_000
	dozySlack  = 1_000_000
)

// Doze lets the kernel end the waits of this process up to a millisecond late, for the rest of its life. Go's monitor thread
// otherwise wakes after 20 µs, again and again, while a goroutine runs or waits for a processor, and each time costs as
// much as the work of a short system call: a tenth of the CPU of writes and of a pod's start. What waits for a connection, a
// file or another goroutine is not delayed, only timers are.
//
// Threads that start later inherit it, and so would programs: see Wake. Only root may change it for threads that exist.
func Doze() error {
	var errs []error
	for range 2 { // also for a thread that started in between
		threads, err := os.ReadDir("/proc/self/task")
		errs = append(errs, err)
		for _, t := range threads {
			err := kernelfile.Write(filepath.Join("/proc", t.Name(), "timerslack_ns"), strconv.Itoa(dozySlack))
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it has ended
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// Wake undoes Doze for the goroutine's thread, which must be locked to it, and for the programs that it starts.
func Wake() error { return unix.Prctl(unix.PR_SET_TIMERSLACK, usualSlack, 0, 0, 0) }
