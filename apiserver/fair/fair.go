// Package fair bounds how many requests are under way and shares the room among
// those who ask: while there is room everybody is let in; after that each user
// has a queue, and whoever leaves makes room for the next user in turn, however
// many requests another one has waiting.
package fair

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Config of a Room.
type Config struct {
	// Seats are how many may be in the room at once; 0 or less: any number.
	Seats int
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
	waiting map[string]*queue
	turns   []*queue // of users who wait, the next one first
}

// queue is what one user has waiting, in the order in which it came.
type queue struct {
	user  string
	calls []chan struct{} // closed when it is its turn
}

// New makes an empty room.
func New(cfg Config) *Room {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Room{cfg: cfg, waiting: map[string]*queue{}}
}

// Enter lets a request of user in, at once or when it is its turn; false when it
// may not wait, or not any longer. Who was let in has to Leave.
func (r *Room) Enter(ctx context.Context, user string) bool {
	call, in := r.enter(user)
	if in || call == nil {
		return in
	}
	timeout := r.cfg.Clock.NewTimer(r.cfg.Wait)
	defer timeout.Stop()
	select {
	case <-call:
		return true
	case <-timeout.C():
	case <-ctx.Done():
	}
	return r.giveUp(user, call)
}

// enter takes a seat, or a place in the user's queue; neither when that is full.
func (r *Room) enter(user string) (call chan struct{}, in bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Seats <= 0 || r.inside < r.cfg.Seats {
		r.inside++
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
	call = make(chan struct{})
	q.calls = append(q.calls, call)
	return call, false
}

// giveUp leaves the queue; true when the call came at the last moment.
func (r *Room) giveUp(user string, call chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.waiting[user]
	if q == nil {
		return true
	}
	for i, c := range q.calls {
		if c == call {
			q.calls = append(q.calls[:i], q.calls[i+1:]...)
			r.tidy(q)
			return false
		}
	}
	return true
}

// tidy forgets a user who has nothing waiting.
func (r *Room) tidy(q *queue) {
	if len(q.calls) > 0 {
		return
	}
	delete(r.waiting, q.user)
	for i, other := range r.turns {
		if other == q {
			r.turns = append(r.turns[:i], r.turns[i+1:]...)
			return
		}
	}
}

// Leave gives the seat to the next user in turn.
func (r *Room) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.turns) == 0 {
		r.inside--
		return
	}
	q := r.turns[0]
	close(q.calls[0])
	q.calls = q.calls[1:]
	r.turns = append(r.turns[1:], q)
	r.tidy(q)
}

// Inside is how many are in the room.
func (r *Room) Inside() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inside
}
