// Package frugal returns memory to the system that the process needed only for a burst or at start: idle heap
// and pages of the binary (Run). Pace makes the garbage collector leave fewer gaps.
//
// The pages of the binary belong to its file: the kernel can drop them when memory is short, and reads them
// again on demand. Until then they count as the process' memory; after a start they are two thirds of it.
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
	// startTime is the time after which the start is complete.
	startTime = 10 * time.Second
	// every is the interval of Run after that.
	every = time.Minute
	// worthFreeing is how much must have been allocated since Run's last collection to justify another, in
	// bytes; in a large heap, whose collection costs more, it is an eighth of the heap.
	worthFreeing = 2 << 20
	worthShare   = 8
)

// Run returns unused memory every minute until ctx ends. It ignores errors: if the system does not allow it, the
// process only keeps the memory.
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

// collect returns idle heap to the system unless little was allocated since the last time, when the total was
// last; it returns the new total. The size of the heap is not sufficient: the last collection may have run in a
// burst and counted as live what no longer is.
func collect(last uint64) uint64 {
	if now, live := allocated(); now-last < max(worthFreeing, live/worthShare) {
		return last
	}
	runtime.GC() // objects in a sync.Pool survive one collection
	debug.FreeOSMemory()
	now, _ := allocated()
	return now
}

// allocated returns how many bytes were allocated since the process started, and how many of them were live at
// the last collection.
func allocated() (all, live uint64) {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64(), sample[1].Value.Uint64()
}

// releaseProgram drops the pages of the binary that are only read.
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
