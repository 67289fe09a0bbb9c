package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns are taken and returned.
type turns struct {
	longest time.Duration
	limit   func() int

	mu      sync.Mutex // guards those below
	taken   int
	waiting []chan struct{} // in order; a channel is closed when its owner has a turn
}

// newTurns returns turns of which as many are taken at a time as limit returns whenever a caller comes or goes, but at
// least one: limit is not called for a caller that is alone. A caller that keeps a turn for more than longest loses it
// to the next.
func newTurns(longest time.Duration, limit func() int) *turns {
	return &turns{longest: longest, limit: limit}
}

// Take waits for a turn, or for the end of ctx, in which case there is none. The caller returns the turn by one
// call of done.
func (t *turns) Take(ctx context.Context) (back func()) {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	t.admit()
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

// admit gives turns to those that wait while fewer than the limit are taken.
func (t *turns) admit() {
	if !t.upTo(1) {
		t.upTo(t.limit())
	}
}

// upTo gives turns to those that wait while fewer than limit are taken, and reports whether none waits any more.
func (t *turns) upTo(limit int) (all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.waiting) > 0 && t.taken < limit {
		t.taken++
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	return len(t.waiting) == 0
}

// leave ends a wait; the turn may have come meanwhile.
func (t *turns) leave(turn chan struct{}) {
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

func (t *turns) giveBack() {
	t.mu.Lock()
	t.taken--
	t.mu.Unlock()
	t.admit()
}
