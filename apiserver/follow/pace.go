package follow

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// echo is how soon after its last run a wake may be of the key's own making: a
	// write comes back as an event, or wakes another key that wakes this one.
	echo = 100 * time.Millisecond
	// brisk is how many runs may follow each other so before they are spaced out: the
	// pods of a large ReplicaSet wake it as often while they start.
	brisk = 50
	// A key that still does not rest waits for a 50th of the time that it has not,
	// within these bounds: an hour of it is some 500 runs, and news wait for 2 % of the
	// time that there have been news.
	paceShare = 50
	minPace   = 5 * time.Millisecond
	maxPace   = 30 * time.Second
)

// pace spaces out the runs of keys that what they do wakes again, directly or by
// way of others, so that no such circle takes a processor. A key that nothing wakes
// for a moment after its run is forgotten.
type pace[K comparable] struct {
	clock clock.PassiveClock

	mu    sync.Mutex // guards what follows
	keys  map[K]*gait
	sweep int // the number of keys at which those at rest are looked for
}

// gait is how a key has run lately.
type gait struct {
	since   time.Time // the first of the runs without a rest
	runs    int       // of them
	running bool
	ended   time.Time // the last of them
	echoed  bool      // it was woken by what may be an echo of that, and runs again at due
	due     time.Time
}

func newPace[K comparable](c clock.PassiveClock) *pace[K] {
	return &pace[K]{clock: c, keys: map[K]*gait{}, sweep: 64}
}

// resting: now is too long after the last run for an echo of it.
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
	case g.echoed: // and waits already
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

// begin notes that a key runs.
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

// end notes that it has.
func (p *pace[K]) end(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.keys[key]; g != nil {
		g.running, g.ended = false, p.clock.Now()
	}
}

// tidy forgets keys at rest, so seldom that it costs nothing.
func (p *pace[K]) tidy() {
	if len(p.keys) < p.sweep {
		return
	}
	now := p.clock.Now()
	for key, g := range p.keys {
		if !g.echoed && g.resting(now) {
			delete(p.keys, key)
		}
	}
	p.sweep = max(64, 2*len(p.keys))
}

// restless counts the keys whose runs are spaced out.
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
