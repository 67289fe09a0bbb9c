// Package fair limits the requests in flight and shares the limit fairly. While seats are free every request enters.
// Otherwise each user has a queue, and a seat that becomes free goes to the next user in turn, however many requests
// another user has waiting. A Pool shares its seats among levels, as upstream's API Priority and Fairness.
package fair

import (
	"context"
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

// Seats is a pool with one level. Use New.
type Seats struct{ level *Level }

// New returns seats that are all free.
func New(cfg Config) *Seats {
	p := NewPool(cfg.Clock)
	l := p.Level()
	if cfg.PerUser <= 0 {
		cfg.PerUser = cfg.Seats
	}
	p.Configure(cfg.Seats,
		map[*Level]LevelConfig{l: {Nominal: cfg.Seats, Max: cfg.Seats, PerUser: cfg.PerUser, Length: cfg.Queue,
			Wait: cfg.Wait}})
	return &Seats{l}
}

// Enter takes seats for a request of user, immediately or when it is the user's turn. It returns false if the queue is
// full or the wait too long. After true the caller must call Leave. A request for more seats than a user can have gets
// the user's maximum.
func (s *Seats) Enter(ctx context.Context, user string, seats int) bool {
	return s.level.Enter(ctx, Flow{User: user}, seats) == Admitted
}

// Leave returns the seats of a request of user.
func (s *Seats) Leave(user string, seats int) { s.level.Leave(user, seats) }

// Taken returns the number of taken seats.
func (s *Seats) Taken() int { return s.level.State().Seats }
