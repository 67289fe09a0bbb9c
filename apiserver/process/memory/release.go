package memory

import (
	"context"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// The start is over after startTime; what runs later is seldom the same code for longer than every.
const (
	startTime = 10 * time.Second
	every     = time.Minute
)

// Release gives the pages of the program's file back to the kernel after the start, and then every minute until ctx ends. They
// are two thirds of the memory of a process that has just started, most of them are not needed again, and the kernel reads
// those that are. It ignores errors: where the system does not allow it, the process only keeps the memory.
func Release(ctx context.Context, c clock.Clock) error {
	for wait := startTime; ; wait = every {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C():
		}
		_ = releaseProgram()
	}
}

// releaseProgram gives back the pages of the program that are only read.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return err
	}
	for _, m := range maps {
		if m.Pathname != program || m.Perms.Write {
			continue
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
