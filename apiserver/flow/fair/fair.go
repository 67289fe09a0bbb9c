// Package fair bounds how much is under way and shares the room among those who
// ask: while there is room everybody is let in; after that each user has a queue,
// and whoever leaves makes room for the next user in turn, however many requests
// another one has waiting.
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
	// Seats are how many there are: of requests, or of bytes that they take; 0 or
	// less: any number.
	Seats int
	// PerUser is how many of them one user may take, so that some are left for the
	// others; 0: all.
	PerUser int
	// Queue is how many requests of one user may wait; more are turned away.
	Queue int
	// Wait is how long one may wait.
	Wait  time.Duration
	Clock clock.Clock // nil: the real one
}

// Room holds those who were let in. It is made by New.
type Room struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	inside  int
	taken   map[string]int // by user
	waiting map[string]*queue
	turns   []*queue // of users who wait, the next one first
}

// queue is what one user has waiting, in the order in which it came.
type queue struct {
	user  string
	calls []call
}

// call is one request that waits.
type call struct {
	seats int
	turn  chan struct{} // closed when it is its turn
}

// New makes an empty room.
func New(cfg Config) *Room {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.PerUser <= 0 {
		cfg.PerUser = cfg.Seats
	}
	return &Room{cfg: cfg, taken: map[string]int{}, waiting: map[string]*queue{}}
}

// Enter lets a request of user in, which takes so many seats, at once or when it
// is its turn; false when it may not wait, or not any longer. Who was let in has
// to Leave. A request for more seats than a user may have gets as many.
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

// enter takes seats, or a place in the user's queue; neither when that is full.
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

// bounded is how many seats a request takes that asks for so many.
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

// take counts seats, or with a negative number gives them back.
func (r *Room) take(user string, seats int) {
	r.inside += seats
	if r.taken[user] += seats; r.taken[user] == 0 {
		delete(r.taken, user)
	}
}

// admit lets in those whose turn it is while there is room. Users who have all
// that they may have are passed over; for one who needs more room than there is
// the others wait, so that it gets some.
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

// giveUp leaves the queue; true when the turn came at the last moment.
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
	r.admit() // who waited behind it may fit
	return false
}

// tidy forgets a user who has nothing waiting.
func (r *Room) tidy(q *queue) {
	if len(q.calls) > 0 {
		return
	}
	delete(r.waiting, q.user)
	r.turns = slices.DeleteFunc(r.turns, func(other *queue) bool { return other == q })
}

// Leave gives the seats that user took to those who wait.
func (r *Room) Leave(user string, seats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(user, -r.bounded(seats))
	r.admit()
}

// Inside is how many seats are taken.
func (r *Room) Inside() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}
