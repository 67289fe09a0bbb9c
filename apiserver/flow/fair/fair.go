// Package fair limits what is in flight and shares it fairly: while seats are free everybody enters; after that
// each user has a queue, and a seat that becomes free goes to the next user in turn, however many requests
// another user has waiting.
package fair

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Config of a Room.
type Config struct {
	// Seats is the number of seats: of requests, or of bytes that they take; 0 or less: no limit.
	Seats int
	// PerUser is the maximum number of seats of one user, so that others can enter; 0: all.
	PerUser int
	// Queue is the maximum number of waiting requests of one user; more are refused.
	Queue int
	// maximum waiting time
	Wait  time.Duration
	Clock clock.Clock // nil: the real one
}

// Room admits requests to a limited number of seats. Use New.
type Room struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	inside  int
	taken   map[string]int // by user
	waiting map[string]*queue
	turns   []*queue // users that wait; the next one is first
}

// queue contains the waiting requests of one user, in order of arrival.
type queue struct {
	user  string
	calls []call
}

// call is a waiting request.
type call struct {
	seats int
	turn  chan struct{} // closed when it is admitted
}

// New returns an empty room.
func New(cfg Config) *Room {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.PerUser <= 0 {
		cfg.PerUser = cfg.Seats
	}
	return &Room{cfg: cfg, taken: map[string]int{}, waiting: map[string]*queue{}}
}

// Enter takes seats for a request of user, immediately or when it is the user's turn; false if the queue is
// full, or the wait too long. After true the caller must call Leave. A request for more seats than a user can
// have gets that maximum.
func (r *Room) Enter(ctx context.Context, user string, seats int) bool {
	turn, in := r.enter(user, seats)
	if in || turn == nil {
		return in
	}
	timeout := r.cfg.Clock.NewTimer(r.cfg.Wait)
	defer timeout.Stop()
	select {
	case <-turn:
		return true
	case <-timeout.C():
	case <-ctx.Done():
	}
	return r.giveUp(user, turn)
}

// enter takes seats, or adds the request to the user's queue; it does neither when the queue is full.
func (r *Room) enter(user string, seats int) (turn chan struct{}, in bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.turns) == 0 && r.fits(seats) && r.fitsUser(user, seats) {
		r.take(user, r.bounded(seats))
		return nil, true
	}
	q := r.waiting[user]
	switch {
	case q == nil && r.cfg.Queue <= 0, q != nil && len(q.calls) >= r.cfg.Queue:
		return nil, false
	case q == nil:
		q = &queue{user: user}
		r.waiting[user] = q
		r.turns = append(r.turns, q)
	}
	turn = make(chan struct{})
	q.calls = append(q.calls, call{seats, turn})
	r.admit()
	return turn, false
}

// bounded limits the number of seats to the maximum for one user.
func (r *Room) bounded(seats int) int {
	if r.cfg.Seats <= 0 {
		return seats
	}
	return min(seats, r.cfg.PerUser)
}

func (r *Room) fits(seats int) bool {
	return r.cfg.Seats <= 0 || r.inside+r.bounded(seats) <= r.cfg.Seats
}

func (r *Room) fitsUser(user string, seats int) bool {
	return r.cfg.Seats <= 0 || r.taken[user]+r.bounded(seats) <= r.cfg.PerUser
}

// take counts seats as taken; a negative number returns them.
func (r *Room) take(user string, seats int) {
	r.inside += seats
	if r.taken[user] += seats; r.taken[user] == 0 {
		delete(r.taken, user)
	}
}

// admit admits waiting requests while seats are free, users in turn. It skips users who have their maximum. If
// the next request needs more seats than are free, the others wait for it, so that large requests do not starve.
func (r *Room) admit() {
	for i := 0; i < len(r.turns); {
		q := r.turns[i]
		next := q.calls[0]
		if !r.fitsUser(q.user, next.seats) {
			i++
			continue
		}
		if !r.fits(next.seats) {
			return
		}
		r.take(q.user, r.bounded(next.seats))
		close(next.turn)
		q.calls = q.calls[1:]
		r.turns = append(slices.Delete(r.turns, i, i+1), q)
		r.tidy(q)
	}
}

// giveUp leaves the queue; true if the request was admitted at the last moment.
func (r *Room) giveUp(user string, turn chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.waiting[user]
	if q == nil {
		return true
	}
	i := slices.IndexFunc(q.calls, func(c call) bool { return c.turn == turn })
	if i < 0 {
		return true
	}
	q.calls = slices.Delete(q.calls, i, i+1)
	r.tidy(q)
	r.admit() // requests behind it may fit
	return false
}

// tidy removes the queue of a user without waiting requests.
func (r *Room) tidy(q *queue) {
	if len(q.calls) > 0 {
		return
	}
	delete(r.waiting, q.user)
	r.turns = slices.DeleteFunc(r.turns, func(other *queue) bool { return other == q })
}

// Leave returns the seats of a request of user.
func (r *Room) Leave(user string, seats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(user, -r.bounded(seats))
	r.admit()
}

// Inside is the number of taken seats.
func (r *Room) Inside() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}
