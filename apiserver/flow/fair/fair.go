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

// Config of Seats.
type Config struct {
	// Seats is the number of seats: of requests, or of bytes that they take; 0 or less: no limit.
	Seats int
	// PerUser is the maximum number of seats of one user, so that others can enter; 0: all.
	PerUser int
	// Queue is the maximum number of waiting requests of one user; more are refused.
	Queue int
	// Wait is the maximum time that a request waits.
	Wait  time.Duration
	Clock clock.Clock // nil: the system's
}

// Seats admits requests to a limited number of seats. Use New.
type Seats struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	used    int
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

// New returns seats that are all free.
func New(cfg Config) *Seats {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.PerUser <= 0 {
		cfg.PerUser = cfg.Seats
	}
	return &Seats{cfg: cfg, taken: map[string]int{}, waiting: map[string]*queue{}}
}

// Enter takes seats for a request of user, immediately or when it is the user's turn; false if the queue is
// full, or the wait too long. After true the caller must call Leave. A request for more seats than a user can
// have gets that maximum.
func (s *Seats) Enter(ctx context.Context, user string, seats int) bool {
	turn, in := s.enter(user, seats)
	if in || turn == nil {
		return in
	}
	timeout := s.cfg.Clock.NewTimer(s.cfg.Wait)
	defer timeout.Stop()
	select {
	case <-turn:
		return true
	case <-timeout.C():
	case <-ctx.Done():
	}
	return s.giveUp(user, turn)
}

// enter takes seats, or adds the request to the user's queue; it does neither when the queue is full.
func (s *Seats) enter(user string, seats int) (turn chan struct{}, in bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) == 0 && s.fits(seats) && s.fitsUser(user, seats) {
		s.take(user, s.bounded(seats))
		return nil, true
	}
	q := s.waiting[user]
	switch {
	case q == nil && s.cfg.Queue <= 0, q != nil && len(q.calls) >= s.cfg.Queue:
		return nil, false
	case q == nil:
		q = &queue{user: user}
		s.waiting[user] = q
		s.turns = append(s.turns, q)
	}
	turn = make(chan struct{})
	q.calls = append(q.calls, call{seats, turn})
	s.admit()
	return turn, false
}

// bounded limits the number of seats to the maximum for one user.
func (s *Seats) bounded(seats int) int {
	if s.cfg.Seats <= 0 {
		return seats
	}
	return min(seats, s.cfg.PerUser)
}

func (s *Seats) fits(seats int) bool {
	return s.cfg.Seats <= 0 || s.used+s.bounded(seats) <= s.cfg.Seats
}

func (s *Seats) fitsUser(user string, seats int) bool {
	return s.cfg.Seats <= 0 || s.taken[user]+s.bounded(seats) <= s.cfg.PerUser
}

// take counts seats as taken; a negative number returns them.
func (s *Seats) take(user string, seats int) {
	s.used += seats
	if s.taken[user] += seats; s.taken[user] == 0 {
		delete(s.taken, user)
	}
}

// admit admits waiting requests while seats are free, users in turn. It skips users who have their maximum. If
// the next request needs more seats than are free, the others wait for it, so that large requests do not starve.
func (s *Seats) admit() {
	for i := 0; i < len(s.turns); {
		q := s.turns[i]
		next := q.calls[0]
		if !s.fitsUser(q.user, next.seats) {
			i++
			continue
		}
		if !s.fits(next.seats) {
			return
		}
		s.take(q.user, s.bounded(next.seats))
		close(next.turn)
		q.calls = q.calls[1:]
		s.turns = append(slices.Delete(s.turns, i, i+1), q)
		s.tidy(q)
	}
}

// giveUp leaves the queue; true if the request was admitted at the last moment.
func (s *Seats) giveUp(user string, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.waiting[user]
	if q == nil {
		return true
	}
	i := slices.IndexFunc(q.calls, func(c call) bool { return c.turn == turn })
	if i < 0 {
		return true
	}
	q.calls = slices.Delete(q.calls, i, i+1)
	s.tidy(q)
	s.admit() // requests behind it may fit
	return false
}

// tidy removes the queue of a user without waiting requests.
func (s *Seats) tidy(q *queue) {
	if len(q.calls) > 0 {
		return
	}
	delete(s.waiting, q.user)
	s.turns = slices.DeleteFunc(s.turns, func(other *queue) bool { return other == q })
}

// Leave returns the seats of a request of user.
func (s *Seats) Leave(user string, seats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(user, -s.bounded(seats))
	s.admit()
}

// Taken returns the number of taken seats.
func (s *Seats) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
