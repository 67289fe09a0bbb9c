package frugal

import (
	"runtime"
	"runtime/debug"
	"time"
)

// By how much the heap grows before the collector runs again, in percent of what is
// live. Little growth keeps what lives close together: gaps that a burst leaves cannot
// be given back. Much growth saves processor time where a lot is going on.
const (
	calmPercent = 25
	busyPercent = 100 // Go's own default
)

// A collection takes some ms: those that follow each other within often cost too much,
// and those that are seldom apart cost nothing.
const (
	often  = 100 * time.Millisecond
	seldom = time.Second
)

// Pace has the collector run at the pace of the work for the rest of the process'
// life. It begins with a start, when a lot is going on.
func Pace() {
	p := &pacer{percent: busyPercent, last: time.Now()}
	debug.SetGCPercent(p.percent)
	runtime.SetFinalizer(p, (*pacer).collected)
}

// pacer is garbage at all times, so that it hears of each collection.
type pacer struct {
	percent int
	last    time.Time // of the last collection
}

func (p *pacer) collected() {
	p.set(time.Now())
	runtime.SetFinalizer(p, (*pacer).collected)
}

// set is told when the collector has run.
func (p *pacer) set(now time.Time) {
	if next := percent(p.percent, now.Sub(p.last)); next != p.percent {
		p.percent = next
		debug.SetGCPercent(next)
	}
	p.last = now
}

// percent follows on one after which the collector ran again so soon.
func percent(was int, after time.Duration) int {
	switch {
	case after < often:
		return min(2*was, busyPercent)
	case after > seldom:
		return calmPercent
	}
	return was
}
