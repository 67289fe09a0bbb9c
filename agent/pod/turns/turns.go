// Package turns limits how many callers do something demanding at a time, without letting those that hang block
// others permanently.
package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Turns are taken and returned.
type Turns struct {
	longest time.Duration
	limit   func() int

	mu      sync.Mutex // guards those below
	taken   int
	waiting []chan struct{} // in order; a channel is closed when its owner has a turn
}

// New returns turns of which as many are taken at a time as limit returns whenever a caller comes or goes, but at least
// one. A caller that keeps a turn for more than longest loses it to the next.
func New(longest time.Duration, limit func() int) *Turns {
	return &Turns{longest: longest, limit: limit}
}

// Take waits for a turn, or for the end of ctx, in which case there is none. The caller returns the turn by one
// call of done.
func (t *Turns) Take(ctx context.Context) (back func()) {
	turn := make(chan struct{})
	limit := t.limit()
	t.mu.Lock()
	t.waiting = append(t.waiting, turn)
	t.admit(limit)
	t.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		t.leave(turn)
		return func() {}
	}
	lost := time.AfterFunc(t.longest, t.giveBack)
	return func() {
		if lost.Stop() {
			t.giveBack()
		}
	}
}

// admit gives turns to those that wait while fewer than limit are taken. t.mu is held.
func (t *Turns) admit(limit int) {
	for len(t.waiting) > 0 && t.taken < max(1, limit) {
		t.taken++
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
}

// leave ends a wait; the turn may have come meanwhile.
func (t *Turns) leave(turn chan struct{}) {
	t.mu.Lock()
	at := slices.Index(t.waiting, turn)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 {
		t.giveBack()
	}
}

func (t *Turns) giveBack() {
	limit := t.limit()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	t.admit(limit)
}
