package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

// concurrencyLimit are taken and returned.
type concurrencyLimit struct {
	longest time.Duration
	limit   func() int

	mu      sync.Mutex // guards those below
	inUse   int
	waiting []chan struct{} // in order; a channel is closed when its owner has a turn
}

// newConcurrencyLimit returns turns of which as many are taken at a time as limit returns whenever a caller comes or goes, but at
// least one: limit is not called for a caller that is alone. A caller that keeps a turn for more than longest loses it
// to the next.
func newConcurrencyLimit(longest time.Duration, limit func() int) *concurrencyLimit {
	return &concurrencyLimit{longest: longest, limit: limit}
}

// acquire waits for a turn, or for the end of ctx, in which case there is none. The caller returns the turn by one
// call of done.
func (t *concurrencyLimit) acquire(ctx context.Context) (back func()) {
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, turn)
	t.mu.Unlock()
	t.grant()
	select {
	case <-turn:
	case <-ctx.Done():
		t.cancel(turn)
		return func() {}
	}
	lost := time.AfterFunc(t.longest, t.release)
	return func() {
		if lost.Stop() {
			t.release()
		}
	}
}

// grant gives turns to those that wait while fewer than the limit are taken.
func (t *concurrencyLimit) grant() {
	if !t.grantUpTo(1) {
		t.grantUpTo(t.limit())
	}
}

// grantUpTo gives turns to those that wait while fewer than limit are taken, and reports whether none waits any more.
func (t *concurrencyLimit) grantUpTo(limit int) (all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.waiting) > 0 && t.inUse < limit {
		t.inUse++
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	return len(t.waiting) == 0
}

// cancel ends a wait; the turn may have come meanwhile.
func (t *concurrencyLimit) cancel(turn chan struct{}) {
	t.mu.Lock()
	at := slices.Index(t.waiting, turn)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 {
		t.release()
	}
}

func (t *concurrencyLimit) release() {
	t.mu.Lock()
	t.inUse--
	t.mu.Unlock()
	t.grant()
}
