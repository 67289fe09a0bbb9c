package memory

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
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

// worth is how much must have been allocated since the heap was given back until it is again: an idle process takes
// minutes.
const worth = 4 << 20

// Release gives memory back to the kernel after the start, and then every minute until ctx ends: the heap, if a burst
// has used it, and the pages of the program's file. These are two thirds of the memory of a process that has just
// started, most of them are not needed again, and the kernel reads those that are. It ignores errors: where the system
// does not allow it, the process only keeps the memory.
func Release(ctx context.Context, c clock.Clock) error {
	released := uint64(0)
	for wait := startTime; ; wait = every {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C():
		}
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}} // the bytes of heap that were ever allocated
		metrics.Read(sample)
		if n := sample[0].Value.Uint64(); n-released > worth {
			debug.FreeOSMemory()
			released = n
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
		if _, _, errno := unix.RawSyscall(unix.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr,
			unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
