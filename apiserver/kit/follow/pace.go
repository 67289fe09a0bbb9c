package follow

import (
	"maps"
	"time"

	"golang.org/x/time/rate"
)

// A key is reconciled at most so often, and in a burst: two writers that undo each other's changes, of which one is a
// controller, would otherwise write to the disk thousands of times a second. Upstream, the limit of a client's requests
// prevents that.
const (
	runsPerSecond = 2
	runsAtOnce    = 500
)

// minSweep is the lowest number of keys at which those at rest are forgotten.
const minSweep = 1000

// pace limits the runs of each key. It is used by one goroutine.
type pace[K comparable] struct {
	of    map[K]*rate.Limiter
	sweep int // the number of keys at which those at rest are forgotten
}

// wait returns how long a key must wait; 0: it runs now.
func (p *pace[K]) wait(key K, now time.Time) time.Duration {
	limit := p.of[key]
	if limit == nil {
		if len(p.of) >= p.sweep {
			maps.DeleteFunc(p.of, func(_ K, l *rate.Limiter) bool { return l.TokensAt(now) >= runsAtOnce })
			p.sweep = max(minSweep, 2*len(p.of))
		}
		limit = rate.NewLimiter(runsPerSecond, runsAtOnce)
		p.of[key] = limit
	}
	if limit.AllowN(now, 1) {
		return 0
	}
	return time.Second / runsPerSecond
}
