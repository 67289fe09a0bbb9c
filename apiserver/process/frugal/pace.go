package frugal

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	_ "monopod/apiserver/process/frugal/early" // no collection until Pace
)

// Growth of the heap before the next collection, in percent of live memory. Little growth keeps live objects
// close together, because the gaps that a burst leaves cannot be returned. Large growth saves CPU under load.
const (
	calmPercent = 25
	busyPercent = 100 // Go's own default, at the start; package early has more until then
)

// Under load the heap may grow by busyBytes, however little of it is live: with 40 MB live, Go's default costs a third
// of the CPU of a server that is busy with writes, and with 200 MB live it takes as much again. With more live the growth ends at
// busyHeap, or on large machines at a heapShare of the memory. On small ones the growth is at most a memoryShare of it. It is never less than
// calmPercent of what is live.
const (
	busyBytes   = 96 << 20
	busyHeap    = 176 << 20
	memoryShare = 16
	heapShare   = 64
)

// Collections that take more than dear of one core need a larger growth, and below cheap of it a smaller one is enough. Where
// they take more than rest, the process has something to do now and then, such as the start of pods: the heap may grow by briskBytes.
const (
	dear       = 0.05
	cheap      = 0.01
	rest       = 0.001
	briskBytes = 8 << 20
)

// Until it has allocated startBytes, which a start with ten pods does not, the heap grows by at most busyPercent: what a start
// allocates for good would else lie between its garbage, in memory that cannot be returned. Load ends that within seconds.
const startBytes = 48 << 20

// Pace adapts the garbage collector to the load for the rest of the process' life. It starts with Go's own setting.
func Pace() {
	p := &pacer{percent: busyPercent, growth: min(busyBytes, Memory()/memoryShare), heap: max(busyHeap, Memory()/heapShare), last: time.Now()}
	debug.SetGCPercent(p.percent)
	runtime.SetFinalizer(p, (*pacer).collected)
}

// pacer is always garbage, so that its finalizer runs at each collection.
type pacer struct {
	percent int
	growth  uint64    // of the heap under load, in bytes
	heap    uint64    // under load, from which on it grows less, in bytes
	last    time.Time // of the last collection
	spent   float64   // CPU seconds of all collections until then
}

func (p *pacer) collected() {
	all, live := allocated()
	p.set(time.Now(), all, live, spent())
	runtime.SetFinalizer(p, (*pacer).collected)
}

// set runs after a collection that found live bytes of all that were allocated since the start, and when all collections
// together took spent CPU seconds.
func (p *pacer) set(now time.Time, all, live uint64, spent float64) {
	live = max(live, 1<<20)
	most := max(calmPercent, int(min(p.growth, p.heap-min(live, p.heap))*100/live))
	brisk := max(calmPercent, int(briskBytes*100/live))
	share := (spent - p.spent) / max(now.Sub(p.last).Seconds(), 1e-6)
	next := percent(p.percent, most, brisk, share)
	if all < startBytes {
		next = min(next, busyPercent)
	}
	if next != p.percent {
		p.percent = next
		debug.SetGCPercent(next)
	}
	p.last, p.spent = now, spent
}

// percent returns the growth after the value was, at most most, when the last collection took this share of a core.
func percent(was, most, brisk int, share float64) int {
	switch {
	case share > dear:
		return min(max(2*was, brisk), most)
	case share < rest:
		return calmPercent
	case share < cheap:
		return min(brisk, most)
	}
	return min(max(was, brisk), most)
}

// spent returns the CPU seconds of all collections, also those on CPUs that had nothing else to do: other programs do.
func spent() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}
