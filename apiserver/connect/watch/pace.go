package watch

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/process/guard"
)

const (
	// few is how many watches of a resource are woken by each change; more are woken in groups of so many, one after the other.
	few = 128
	// pausePerWatch and maxPause are how long more watches of a resource pause after they were woken. To wake a watch for an event
	// and to write it costs some 15 µs; for each further event in the same write, 4 µs.
	pausePerWatch = 32 * time.Microsecond
	maxPause      = 32 * time.Millisecond
)

// pace wakes the watches of a resource. If they are many, changes that follow each other closely wake a watch
// once: otherwise a thousand watches of pods that change 50 times a second take a core. The first change after a pause wakes it
// at once.
type pace struct {
	clock clock.WithTicker
	stop  context.Context
	guard *guard.Guard
	start time.Time
	mu    sync.Mutex // guards what follows, and groups
	of    map[string]*crowd
}

// crowd is the watches of a resource.
type crowd struct {
	size   int
	groups []*group
}

// group is watches that are woken together.
type group struct {
	crowd *crowd
	index int
	size  int
	wake  <-chan struct{} // what a goroutine waits for, to wake them
	woke  chan struct{}   // closed by it; nil if there is none
	last  time.Time       // when they were woken
}

func newPace(cfg Config) *pace {
	return &pace{clock: cfg.Clock, stop: cfg.Stop, guard: cfg.Guard, start: cfg.Clock.Now(), of: map[string]*crowd{}}
}

// enter adds a watch of a resource, until leave.
func (p *pace) enter(resource string) (g *group, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.of[resource]
	if c == nil {
		c = &crowd{}
		p.of[resource] = c
	}
	g = c.room()
	c.size++
	g.size++
	return g, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		g.size--
		if c.size--; c.size == 0 {
			delete(p.of, resource)
		}
	}
}

// room returns the first group that is not full.
func (c *crowd) room() *group {
	for _, g := range c.groups {
		if g.size < few {
			return g
		}
	}
	g := &group{crowd: c, index: len(c.groups)}
	c.groups = append(c.groups, g)
	return g
}

// after returns what a watch waits for that has read everything until the store closes wake.
func (p *pace) after(g *group, wake <-chan struct{}) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.crowd.size <= few {
		return wake
	}
	if g.woke == nil {
		woke := make(chan struct{})
		g.wake, g.woke = wake, woke
		p.guard.Spawn("watches", func() { p.relay(g, wake, woke) })
	} else if g.wake != wake && closed(wake) { // the others have read what this one has not, and may wait for long
		return wake
	}
	return g.woke
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// relay closes woke after wake is closed, and the pause is over.
func (p *pace) relay(g *group, wake <-chan struct{}, woke chan<- struct{}) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		g.last = p.clock.Now()
		g.wake, g.woke = nil, nil
		close(woke)
	}()
	select {
	case <-wake:
	case <-p.stop.Done():
		return
	}
	if left := p.pause(g); left > 0 {
		t := p.clock.NewTimer(left)
		defer t.Stop()
		select {
		case <-t.C():
		case <-p.stop.Done():
		}
	}
}

// pause returns how long g pauses. The groups of a resource take turns.
func (p *pace) pause(g *group) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := min(maxPause, time.Duration(g.crowd.size)*pausePerWatch)
	now := p.clock.Now()
	if now.Sub(g.last) >= every {
		return 0
	}
	turn := every * time.Duration(g.index) / time.Duration(len(g.crowd.groups))
	return every - (now.Sub(p.start)+every-turn)%every
}
