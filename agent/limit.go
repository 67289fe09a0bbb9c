package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

// concurrencyLimit limits how many callers do something demanding at the same time. A caller that hangs does not block
// others permanently.
type concurrencyLimit struct {
	longest time.Duration
	limit   func() int

	mu      sync.Mutex // guards the fields below
	inUse   int
	waiting []chan struct{} // in order; a channel is closed when its owner has a slot
}

// newConcurrencyLimit returns a limit of as many slots as limit returns, which is called whenever a slot is requested
// or released. A caller that is alone gets a slot without a call of limit. A caller that keeps a slot for longer than
// longest loses it.
func newConcurrencyLimit(longest time.Duration, limit func() int) *concurrencyLimit {
	return &concurrencyLimit{longest: longest, limit: limit}
}

// acquire waits for a slot, which the caller releases by one call of release. If ctx ends first, the caller gets no
// slot and release does nothing.
func (t *concurrencyLimit) acquire(ctx context.Context) (release func()) {
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

// grant gives the free slots to callers that wait.
func (t *concurrencyLimit) grant() {
	if !t.grantUpTo(1) {
		t.grantUpTo(t.limit())
	}
}

// grantUpTo gives slots to callers that wait while fewer than limit are in use. It reports whether no caller waits.
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

// cancel ends a wait, and releases the slot if it was granted meanwhile.
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
