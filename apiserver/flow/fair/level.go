package fair

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// LevelConfig of a Level. The zero value admits nothing, unless the pool has no limit.
type LevelConfig struct {
	// Nominal is the level's share of the seats, Min the part of it that other levels cannot borrow, and Max the maximum
	// that the level can have when others use less than their share.
	Min, Nominal, Max int
	// PerUser is the maximum number of seats of one user, so that others can enter; 0: all.
	PerUser int
	// Queues is the number of queues, among which flows are distributed, each over Hand of them; 0: a queue for each
	// user.
	Queues, Hand int
	// Length is the maximum number of waiting requests of a queue; more are refused. 0: requests do not wait.
	Length int
	// Wait is the maximum time that a request waits.
	Wait time.Duration
}

// Level is a part of a pool's seats with its own queues. Use Pool.Level. The pool's mutex guards all fields.
type Level struct {
	pool     *Pool
	cfg      LevelConfig
	dealer   *shufflesharding.Dealer // nil: a queue for each user
	ended    bool                    // the level is removed when it is empty
	used     int
	taken    map[string]int // by user
	queues   map[queueKey]*queue
	turns    []*queue // queues that are not empty; the next one is first
	counters Counters

	queued              int // seats of waiting requests
	utilization, demand load
}

// Flow identifies the flow of a request. Schema and Distinguisher determine its queues, unless each user has a queue.
type Flow struct {
	User, Schema, Distinguisher string
	Note                        any              // about the request, for State
	Queued                      func(length int) // called with the queue's length if the request waits; or nil
}

// hash returns upstream's hash of the flow.
func (f Flow) hash() uint64 {
	sum := sha256.Sum256([]byte(f.Schema + "\x00" + f.Distinguisher))
	return binary.LittleEndian.Uint64(sum[:])
}

// Outcome is the result of Enter.
type Outcome string

// The outcomes, in upstream's words for the reasons.
const (
	Admitted  Outcome = ""
	Full      Outcome = "queue-full"
	Limited   Outcome = "concurrency-limit" // the level has no queues
	TimedOut  Outcome = "time-out"
	Cancelled Outcome = "cancelled"
)

// Counters count the outcomes of a level's requests.
type Counters struct{ Dispatched, Rejected, TimedOut, Cancelled int }

// queueKey is the user, or the index.
type queueKey struct {
	user  string
	index int
}

// queue contains waiting requests, in order of arrival.
type queue struct {
	key   queueKey
	calls []*call
}

// call is a waiting request.
type call struct {
	flow    Flow
	seats   int
	arrived time.Time
	wait    time.Duration
	queue   *queue
	turn    chan struct{} // closed when it is admitted
	in      bool
}

// Enter takes seats for a request of a flow, immediately or when it is the flow's turn. After Admitted the caller must
// call Leave. A request for more seats than a user can have gets that maximum.
func (l *Level) Enter(ctx context.Context, flow Flow, seats int) Outcome {
	c, outcome := l.enter(flow, seats)
	if c == nil {
		return outcome
	}
	timeout := l.pool.clock.NewTimer(c.wait)
	defer timeout.Stop()
	outcome = TimedOut
	select {
	case <-c.turn:
		return Admitted
	case <-timeout.C():
	case <-ctx.Done():
		outcome = Cancelled
	}
	return l.giveUp(c, outcome)
}

// TryEnter is Enter for a request that does not wait. It returns false if the request would have to wait.
func (l *Level) TryEnter(user string, seats int) bool {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.tryEnter(user, seats)
}

func (l *Level) tryEnter(user string, seats int) bool {
	if len(l.turns) > 0 || !l.fits(seats) || !l.fitsUser(user, seats) {
		return false
	}
	l.take(user, l.bounded(seats))
	l.counters.Dispatched++
	return true
}

// enter takes seats, or adds the request to a queue and returns the call.
func (l *Level) enter(flow Flow, seats int) (*call, Outcome) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.tryEnter(flow.User, seats) {
		return nil, Admitted
	}
	if l.cfg.Length <= 0 {
		l.counters.Rejected++
		return nil, Limited
	}
	q := l.queueOf(flow)
	if len(q.calls) >= l.cfg.Length {
		l.counters.Rejected++
		return nil, Full
	}
	c := &call{flow: flow, seats: seats, arrived: p.clock.Now(), wait: l.cfg.Wait, queue: q, turn: make(chan struct{})}
	if len(q.calls) == 0 {
		l.queues[q.key] = q
		l.turns = append(l.turns, q)
	}
	q.calls = append(q.calls, c)
	if flow.Queued != nil {
		flow.Queued(len(q.calls))
	}
	p.waiting++
	l.queued += seats
	l.measure()
	p.admit()
	return c, Admitted
}

// queueOf returns the shortest queue of the flow's hand, or the user's.
func (l *Level) queueOf(flow Flow) *queue {
	if l.dealer == nil {
		return l.queueAt(queueKey{user: flow.User})
	}
	var best *queue
	for _, i := range l.dealer.DealIntoHand(flow.hash(), make([]int, l.cfg.Hand)) {
		if q := l.queueAt(queueKey{index: i}); best == nil || len(q.calls) < len(best.calls) {
			best = q
		}
	}
	return best
}

// queueAt returns a queue, which is new if it would be empty.
func (l *Level) queueAt(key queueKey) *queue {
	if q := l.queues[key]; q != nil {
		return q
	}
	return &queue{key: key}
}

// bounded limits the number of seats to the maximum for one user.
func (l *Level) bounded(seats int) int {
	if l.pool.seats <= 0 || l.cfg.PerUser <= 0 {
		return seats
	}
	return min(seats, l.cfg.PerUser)
}

// fits reports whether seats are free for the level. Its own minimum is always free.
func (l *Level) fits(seats int) bool {
	if l.pool.seats <= 0 {
		return true
	}
	next := l.used + l.bounded(seats)
	more := max(next, l.cfg.Min) - max(l.used, l.cfg.Min)
	return next <= l.cfg.Max && (more == 0 || l.pool.reserved+more <= l.pool.seats)
}

func (l *Level) fitsUser(user string, seats int) bool {
	return l.pool.seats <= 0 || l.cfg.PerUser <= 0 || l.taken[user]+l.bounded(seats) <= l.cfg.PerUser
}

// take counts seats as taken; a negative number returns them.
func (l *Level) take(user string, seats int) {
	l.pool.reserved -= max(l.used, l.cfg.Min)
	l.used += seats
	l.pool.reserved += max(l.used, l.cfg.Min)
	if l.taken[user] += seats; l.taken[user] == 0 {
		delete(l.taken, user)
	}
	l.measure()
}

// admitNext admits one waiting request, queues in turn. It skips users at their maximum. If the next request
// needs more seats than are free, the others wait for it, so that large requests do not starve.
func (l *Level) admitNext() bool {
	for i, q := range l.turns {
		at := l.nextOf(q)
		if at < 0 {
			continue
		}
		c := q.calls[at]
		if !l.fits(c.seats) {
			return false
		}
		l.take(c.flow.User, l.bounded(c.seats))
		l.counters.Dispatched++
		c.in = true
		close(c.turn)
		l.turns = append(slices.Delete(l.turns, i, i+1), q)
		l.remove(c)
		return true
	}
	return false
}

// nextOf returns the index of the first call of a queue whose user can have more seats, or -1. Calls of one user keep
// their order.
func (l *Level) nextOf(q *queue) int {
	var full []string
	for i, c := range q.calls {
		if slices.Contains(full, c.flow.User) {
			continue
		}
		if l.fitsUser(c.flow.User, c.seats) {
			return i
		}
		full = append(full, c.flow.User)
	}
	return -1
}

// remove removes a call from its queue, and the queue if it is empty.
func (l *Level) remove(c *call) {
	q := c.queue
	q.calls = slices.DeleteFunc(q.calls, func(other *call) bool { return other == c })
	l.pool.waiting--
	l.queued -= c.seats
	l.measure()
	if len(q.calls) == 0 {
		delete(l.queues, q.key)
		l.turns = slices.DeleteFunc(l.turns, func(other *queue) bool { return other == q })
	}
}

// giveUp leaves the queue, unless the request was admitted at the last moment.
func (l *Level) giveUp(c *call, outcome Outcome) Outcome {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if c.in {
		return Admitted
	}
	if l.remove(c); outcome == TimedOut {
		l.counters.TimedOut++
	} else {
		l.counters.Cancelled++
	}
	l.pool.admit() // requests behind it may fit
	l.pool.tidy(l)
	return outcome
}

// Leave returns the seats of a request of user.
func (l *Level) Leave(user string, seats int) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.take(user, -l.bounded(seats))
	l.pool.admit()
	l.pool.tidy(l)
}
