// Package frugal gives memory back to the system that this process needed for a
// burst, or only to start: idle heap, and the pages of its own program.
//
// The pages of a program are the file's own: the kernel may drop them whenever
// it is short of memory, and reads them again when they are needed. Until then
// they count as the process' memory, two thirds of it after a start.
package frugal

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

const (
	// startTime is when everything that only a start needs is over.
	startTime = 10 * time.Second
	// every is how often Run looks after that.
	every = 5 * time.Minute
	// worthFreeing is how much heap must lie idle to be worth a collection, in
	// bytes.
	worthFreeing = 1 << 20
)

// Run gives back what is not needed until ctx ends. It is silent: a system that
// does not let it only keeps what it has.
func Run(ctx context.Context, c clock.Clock) error {
	for wait := startTime; ; wait = every {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C():
		}
		if idleHeap() > worthFreeing {
			debug.FreeOSMemory()
		}
		_ = releaseProgram()
	}
}

// idleHeap is how many bytes of the heap hold nothing that is in use, as of the
// last collection, and are not given back to the system.
func idleHeap() int64 {
	sample := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) + int64(sample[1].Value.Uint64()) - int64(sample[2].Value.Uint64())
}

// releaseProgram lets go of the pages of the program's file that are only read.
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
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}
