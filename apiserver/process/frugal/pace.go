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

// A collection takes some ms: if it follows the previous one within often it costs too much, and after seldom it
// costs nothing.
const (
	often  = 100 * time.Millisecond
	seldom = time.Second
)

// Pace adapts the garbage collector to the load for the rest of the process' life. It starts with the setting
// for high load.
func Pace() {
	p := &pacer{percent: busyPercent, last: time.Now()}
	debug.SetGCPercent(p.percent)
	runtime.SetFinalizer(p, (*pacer).collected)
}

// pacer is always garbage, so that its finalizer runs at each collection.
type pacer struct {
	percent int
	last    time.Time // of the last collection
}

func (p *pacer) collected() {
	p.set(time.Now())
	runtime.SetFinalizer(p, (*pacer).collected)
}

// set runs after a collection.
func (p *pacer) set(now time.Time) {
	if next := percent(p.percent, now.Sub(p.last)); next != p.percent {
		p.percent = next
		debug.SetGCPercent(next)
	}
	p.last = now
}

// percent returns the growth after the value was, when the last two collections were so far apart.
func percent(was int, after time.Duration) int {
	switch {
	case after < often:
		return min(2*was, busyPercent)
	case after > seldom:
		return calmPercent
	}
	return was
}
