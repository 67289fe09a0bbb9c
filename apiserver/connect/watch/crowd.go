package watch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/process/guard"
)

const (
	// few is how many watches of a resource wait together, in one group, whose goroutine resumes them one after the other.
	few = 128
	// pausePerWatch and maxPause are how long watches of a resource with more than one group pause after they were resumed. To resume a watch
	// for an event and to write it costs some 6 µs; for each further event in the same write, 3 µs.
	pausePerWatch = 32 * time.Microsecond
	maxPause      = 32 * time.Millisecond
)

// crowds resume the watches that wait for changes, for a time, or for their end. If watches of a resource are many, changes that follow each other
// closely resume a watch once: otherwise a thousand watches of pods that change 50 times a second take half a core. The first change after
// a pause resumes it at once.
type crowds struct {
	clock clock.WithTicker
	stop  context.Context
	guard *guard.Guard
	start time.Time
	mu    sync.Mutex // guards what follows, groups, and the group of each watch
	of    map[string]*crowd
}

// crowd is the watches of a resource.
type crowd struct {
	size   int
	groups []*group
}

// group is watches that wait together, for the same channels.
type group struct {
	crowd  *crowd
	index  int
	size   int
	parked []*watchStream
	wake   <-chan struct{} // of the store, for all of them
	closed <-chan struct{} // of the store
	runs   bool            // its goroutine
	waits  bool            // that waits
	until  time.Time       // until then, if nothing else happens
	look   chan struct{}   // lets it look again
	last   time.Time       // when all were resumed
}

// waiting is the state of a watch that waits, or may wait.
type waiting struct {
	group   *group
	at      int // in its parked; -1: it does not wait
	request interface {
		Resume()
		Reserve(n int) bool
	}
	gone atomic.Bool // the client has left
	// together is set while the watch makes a step that others wait for; stuck, when it would have to wait for its client meanwhile.
	together, stuck bool
	dirty           bool // something was written that is not flushed
}

func newCrowds(cfg Config) *crowds {
	return &crowds{clock: cfg.Clock, stop: cfg.Stop, guard: cfg.Guard, start: cfg.Clock.Now(), of: map[string]*crowd{}}
}

// enter adds a watch, until leave.
func (p *crowds) enter(st *watchStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of[st.sel.Resource]
	if c == nil {
		c = &crowd{}
		p.of[st.sel.Resource] = c
	}
	c.size++
	st.wait.at = -1
	c.room(func(*group) bool { return true }).join(st)
}

// leave is called when the watch has ended.
func (p *crowds) leave(st *watchStream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := st.wait.group.crowd
	st.wait.group.size--
	if c.size--; c.size == 0 {
		delete(p.of, st.sel.Resource)
	}
}

// room returns the first suitable group that is not full.
func (c *crowd) room(suits func(*group) bool) *group {
	for _, g := range c.groups {
		if g.size < few && suits(g) {
			return g
		}
	}
	g := &group{crowd: c, index: len(c.groups), look: make(chan struct{}, 1)}
	c.groups = append(c.groups, g)
	return g
}

func (g *group) join(st *watchStream) {
	if was := st.wait.group; was != nil {
		was.size--
	}
	st.wait.group = g
	g.size++
}

// park lets a watch wait that has read everything until the store closes wake. It returns false if the watch has something to do.
func (p *crowds) park(st *watchStream, wake <-chan struct{}) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if closed(wake) || st.wait.gone.Load() || p.stop.Err() != nil {
		return false
	}
	ends := st.changes.Closed()
	suits := func(g *group) bool {
		return len(g.parked) == 0 || g.closed == ends && (g.wake == wake || closed(g.wake)) // those that wait for a closed one are about to be resumed
	}
	if !suits(st.wait.group) { // its changes come from elsewhere
		st.wait.group.crowd.room(suits).join(st)
	}
	g := st.wait.group
	other := len(g.parked) == 0 && (g.wake != wake || g.closed != ends)
	if other {
		g.wake, g.closed = wake, ends
	}
	st.wait.at, st.wait.together = len(g.parked), false
	g.parked = append(g.parked, st)
	if !g.runs {
		g.runs = true
		p.guard.Spawn("watches", func() { p.run(g) })
	} else if other || st.next().Before(g.until) {
		g.poke()
	}
	return true
}

// poke lets the group's goroutine look again what it waits for, if it waits. p.mu is held.
func (g *group) poke() {
	if g.waits {
		select {
		case g.look <- struct{}{}:
		default:
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// left ends a watch whose client has left.
func (p *crowds) left(st *watchStream) {
	st.wait.gone.Store(true)
	p.mu.Lock()
	waits := st.wait.at >= 0
	if waits {
		g := st.wait.group
		if g.remove(st); len(g.parked) == 0 {
			g.poke() // it ends
		}
	}
	p.mu.Unlock()
	if waits {
		st.wait.request.Resume()
	}
}

// remove takes a watch that will be resumed. p.mu is held.
func (g *group) remove(st *watchStream) {
	last := g.parked[len(g.parked)-1]
	g.parked[st.wait.at], last.wait.at = last, st.wait.at
	g.parked[len(g.parked)-1] = nil
	g.parked = g.parked[:len(g.parked)-1]
	st.wait.at = -1
}

// run resumes the watches of a group, while some wait.
func (p *crowds) run(g *group) {
	timer := p.clock.NewTimer(time.Hour)
	defer timer.Stop()
	var ready []*watchStream
	for {
		wake, ends, until, waits := p.next(g)
		if !waits {
			return
		}
		timer.Reset(until.Sub(p.clock.Now()))
		suits := func(st *watchStream) bool { return !st.next().After(p.clock.Now()) }
		select {
		case <-wake:
			p.rest(g, timer)
			suits = func(*watchStream) bool { return true }
		case <-ends:
			suits = func(*watchStream) bool { return true }
		case <-p.stop.Done():
			suits = func(*watchStream) bool { return true }
		case <-g.look:
		case <-timer.C():
		}
		ready = p.take(g, ready[:0], suits)
		for _, st := range ready {
			p.resume(st)
		}
		clear(ready)
	}
}

// next returns what a group waits for; waits is false if no watch does, and its goroutine ends.
func (p *crowds) next(g *group) (wake, ends <-chan struct{}, until time.Time, waits bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.runs = len(g.parked) > 0
	if g.waits = g.runs; !g.runs {
		g.parked = nil
		return nil, nil, until, false
	}
	g.until = g.parked[0].next()
	for _, st := range g.parked[1:] {
		if next := st.next(); next.Before(g.until) {
			g.until = next
		}
	}
	return g.wake, g.closed, g.until, true
}

// take takes the watches that are to be resumed.
func (p *crowds) take(g *group, ready []*watchStream, suits func(*watchStream) bool) []*watchStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.waits = false
	for _, st := range slices.Backward(g.parked) {
		if suits(st) {
			g.remove(st)
			ready = append(ready, st)
		}
	}
	if len(g.parked) == 0 {
		g.last = p.clock.Now()
	}
	return ready
}

// resume lets a watch make its next step.
func (p *crowds) resume(st *watchStream) {
	st.wait.together = true
	_ = p.guard.Call("watches", func() error { st.wait.request.Resume(); return nil }) // a panic is that of one watch, whose response it has ended
}

// rest pauses after a change if the watches are many and were resumed just before.
func (p *crowds) rest(g *group, timer clock.Timer) {
	left := p.pause(g)
	if left <= 0 {
		return
	}
	timer.Reset(left)
	select {
	case <-timer.C():
	case <-p.stop.Done():
	}
}

// pause returns how long g pauses. The groups of a resource take turns.
func (p *crowds) pause(g *group) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.crowd.size <= few {
		return 0
	}
	every := min(maxPause, time.Duration(g.crowd.size)*pausePerWatch)
	now := p.clock.Now()
	if now.Sub(g.last) >= every {
		return 0
	}
	turn := every * time.Duration(g.index) / time.Duration(len(g.crowd.groups))
	return every - (now.Sub(p.start)+every-turn)%every
}
