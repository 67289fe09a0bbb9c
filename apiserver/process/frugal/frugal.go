// Package frugal gives memory back to the system that this process needed for a
// burst, or only to start: idle heap, and the pages of its own program (Run); and it
// has the garbage collector leave fewer gaps (Pace).
//
// The pages of a program are the file's own: the kernel may drop them whenever
// it is short of memory, and reads them again when they are needed. Until then
// they count as the process' memory, two thirds of it after a start.
package frugal

import (
	"context"
	"fmt"
	"os"
	"runtime"
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
	every = time.Minute
	// worthFreeing is how much must have been allocated since the last collection of
	// Run to be worth another, in bytes; in a large heap, whose collection costs more,
	// it is an eighth of it.
	worthFreeing = 2 << 20
	worthShare   = 8
)

// Run gives back what is not needed until ctx ends. It is silent: a system that
// does not let it only keeps what it has.
func Run(ctx context.Context, c clock.Clock) error {
	var collected uint64
	for wait := startTime; ; wait = every {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C():
		}
		collected = collect(collected)
		_ = releaseProgram()
	}
}

// collect gives idle heap back unless hardly anything was allocated since it last
// did, when so many bytes had been; it returns how many had been then. How large the
// heap is does not tell: the collector may last have looked amid a burst, and have
// taken for live what is not any more.
func collect(last uint64) uint64 {
	if now, live := allocated(); now-last < max(worthFreeing, live/worthShare) {
		return last
	}
	runtime.GC() // what lies in a sync.Pool outlives one
	debug.FreeOSMemory()
	now, _ := allocated()
	return now
}

// allocated is how many bytes have been allocated since the process began, and how
// many of them the last collection found live.
func allocated() (all, live uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64(), sample[1].Value.Uint64()
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
