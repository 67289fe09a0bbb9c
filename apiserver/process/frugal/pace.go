package frugal

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Growth of the heap before the next collection, in percent of live memory. Little growth keeps live objects
// close together, because the gaps that a burst leaves cannot be returned. Large growth saves CPU under load.
const (
	calmPercent = 25
	busyPercent = 100 // Go's own default
)

// Under load a small heap may grow by busyBytes, however little of it is live: with 40 MB live, Go's default costs
// a third of the CPU of a server that is busy with writes. On small machines the growth is at most a memoryShare of
// the memory.
const (
	busyBytes   = 96 << 20
	memoryShare = 16
)

// A collection takes some ms: if it follows the previous one within often it costs too much, and after seldom it
// costs nothing.
const (
	often  = 200 * time.Millisecond
	seldom = time.Second
)

// Pace adapts the garbage collector to the load for the rest of the process' life. It starts with Go's own setting.
func Pace() {
	p := &pacer{percent: busyPercent, growth: min(busyBytes, memory()/memoryShare), last: time.Now()}
	debug.SetGCPercent(p.percent)
	runtime.SetFinalizer(p, (*pacer).collected)
}

// pacer is always garbage, so that its finalizer runs at each collection.
type pacer struct {
	percent int
	growth  uint64    // of the heap under load, in bytes
	last    time.Time // of the last collection
}

func (p *pacer) collected() {
	_, live := allocated()
	p.set(time.Now(), live)
	runtime.SetFinalizer(p, (*pacer).collected)
}

// set runs after a collection that found live bytes.
func (p *pacer) set(now time.Time, live uint64) {
	most := max(busyPercent, int(p.growth*100/max(live, 1<<20)))
	if next := percent(p.percent, most, now.Sub(p.last)); next != p.percent {
		p.percent = next
		debug.SetGCPercent(next)
	}
	p.last = now
}

// percent returns the growth after the value was, at most most, when the last two collections were so far apart.
func percent(was, most int, after time.Duration) int {
	switch {
	case after < often:
		return min(2*was, most)
	case after > seldom:
		return calmPercent
	}
	return min(was, most)
}
