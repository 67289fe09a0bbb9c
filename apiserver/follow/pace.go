package follow

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// echo is how soon after its last run a wake may be caused by the key itself: its write comes back as an
	// event, or wakes another key that wakes this one.
	echo = 100 * time.Millisecond
	// brisk is how many consecutive runs of this kind are not delayed: the pods of a large ReplicaSet wake it as
	// often while they start.
	brisk = 50
	// A key that still does not settle waits for a 50th of the time since it last rested, within these bounds:
	// about 500 runs in an hour, and changes are delayed by 2 % of the time for which there were changes.
	paceShare = 50
	minPace   = 5 * time.Millisecond
	maxPace   = 30 * time.Second
)

// pace delays the runs of keys that are woken by their own effects, directly or through others, so that no such
// cycle uses a whole CPU. A key that is not woken for a moment after its run is forgotten.
type pace[K comparable] struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards what follows
	keys  map[K]*gait
	sweep int // number of keys at which keys at rest are removed
}

// gait records the recent runs of a key.
type gait struct {
	since   time.Time // start of the first of the runs without a rest
	runs    int       // their number
	running bool
	ended   time.Time // end of the last one
	echoed  bool      // it was woken by a possible echo, and runs again at due
	due     time.Time
}

func newPace[K comparable](c clock.PassiveClock) *pace[K] {
	return &pace[K]{clock: c, keys: map[K]*gait{}, sweep: 64}
}

// resting reports whether now is too long after the last run for an echo.
func (g *gait) resting(now time.Time) bool { return !g.running && now.Sub(g.ended) > echo }

// woken returns how long a key that is to run after in must wait at least.
func (p *pace[K]) woken(key K, in time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	g := p.keys[key]
	switch {
	case g == nil:
		return 0
	case g.echoed: // it is already delayed
		return g.due.Sub(now)
	case in > echo || g.resting(now):
		return 0
	}
	g.echoed, g.due = true, now
	if g.runs >= brisk {
		g.due = now.Add(min(max(now.Sub(g.since)/paceShare, minPace), maxPace))
	}
	return g.due.Sub(now)
}

// begin records the start of a run.
func (p *pace[K]) begin(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.keys[key]
	if g == nil || !g.echoed {
		p.tidy()
		g = &gait{since: p.clock.Now()}
		p.keys[key] = g
	}
	g.runs, g.running, g.echoed = g.runs+1, true, false
}

// end records the end of a run.
func (p *pace[K]) end(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.keys[key]; g != nil {
		g.running, g.ended = false, p.clock.Now()
	}
}

// tidy releases keys at rest, rarely enough to cost nothing.
func (p *pace[K]) tidy() {
	if len(p.keys) >= p.sweep {
		p.release()
	}
}

// release removes keys at rest. It requires mu.
func (p *pace[K]) release() {
	now := p.clock.Now()
	for key, g := range p.keys {
		if !g.echoed && g.resting(now) {
			delete(p.keys, key)
		}
	}
	p.sweep = max(64, 2*len(p.keys))
}

// restless returns the number of delayed keys.
func (p *pace[K]) restless() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := p.clock.Now(), 0
	for _, g := range p.keys {
		if g.runs >= brisk && (g.echoed || !g.resting(now)) {
			n++
		}
	}
	return n
}
