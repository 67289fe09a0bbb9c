package fair

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/clock"
)

// Pool is a number of seats that levels share. A level can always use its minimum, and borrow unused seats of other
// levels. A seat that becomes free goes first to a waiting level that has less than its share. Use NewPool.
type Pool struct {
	clock clock.Clock

	mu       sync.Mutex // guards what follows
	seats    int        // 0 or less: no limit
	reserved int        // what levels use, or their minimum if they use less
	waiting  int        // calls
	levels   []*Level
	turn     int // the index of the level that is next
}

// NewPool returns a pool without levels. A nil clock is the system's.
func NewPool(c clock.Clock) *Pool {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Pool{clock: c}
}

// Level adds a level, which has no seats until Configure.
func (p *Pool) Level() *Level {
	l := &Level{pool: p, taken: map[string]int{}, queues: map[queueKey]*queue{}, utilization: load{bounds: utilizations},
		demand: load{bounds: demands}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.levels = append(p.levels, l)
	return l
}

// Configure sets the number of seats (0 or less: no limit) and the levels. Levels that are not among them end: no
// request may enter them any more, and they keep their share until their last request has left.
func (p *Pool) Configure(seats int, levels map[*Level]LevelConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seats, p.reserved = seats, 0
	for _, l := range slices.Clone(p.levels) {
		cfg, ok := levels[l]
		if !ok {
			cfg = l.cfg
		}
		if cfg.Queues != l.cfg.Queues || cfg.Hand != l.cfg.Hand {
			l.dealer = nil
			if cfg.Queues > 0 {
				l.dealer, _ = shufflesharding.NewDealer(cfg.Queues, cfg.Hand) // the error: one queue for each user
			}
		}
		l.cfg = cfg
		l.measure()
		l.ended = !ok
		p.reserved += max(l.used, cfg.Min)
		p.tidy(l)
	}
	p.admit()
}

// tidy removes a level that has ended and is empty.
func (p *Pool) tidy(l *Level) {
	if l.ended && l.used == 0 && len(l.turns) == 0 {
		p.levels = slices.DeleteFunc(p.levels, func(other *Level) bool { return other == l })
		p.reserved -= l.cfg.Min
		p.admit()
	}
}

// admit admits waiting requests while seats are free, levels in turn: first those that have less than their share.
func (p *Pool) admit() {
	for _, borrows := range []bool{false, true} {
		for idle := 0; p.waiting > 0 && idle < len(p.levels); p.turn++ {
			l := p.levels[p.turn%len(p.levels)]
			if (borrows || l.used < l.cfg.Nominal) && l.admitNext() {
				idle = 0
			} else {
				idle++
			}
		}
	}
}

// Waiting is a request that waits.
type Waiting struct {
	Queue, Index int // Queue is -1 if each user has a queue
	Flow         Flow
	Arrived      time.Time
}

// State is the state of a level.
type State struct {
	Counters
	Seats   int // that are taken
	Limit   int // what the level can have now
	Queues  int // that are not empty
	Ended   bool
	Waiting []Waiting
}

// State returns the level's current state.
func (l *Level) State() State {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Counters: l.counters, Seats: l.used, Queues: len(l.turns), Ended: l.ended}
	s.Limit = min(l.cfg.Max, max(l.cfg.Min, p.seats-p.reserved+max(l.used, l.cfg.Min)))
	for _, q := range l.turns {
		for i, c := range q.calls {
			w := Waiting{Queue: q.key.index, Index: i, Flow: c.flow, Arrived: c.arrived}
			if l.dealer == nil {
				w.Queue = -1
			}
			s.Waiting = append(s.Waiting, w)
		}
	}
	return s
}
