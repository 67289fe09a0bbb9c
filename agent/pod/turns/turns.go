// Package turns limits how many callers do something demanding at a time, without letting those that hang block
// others for good.
package turns

import (
	"context"
	"time"
)

// Turns are taken and returned.
type Turns struct {
	longest time.Duration
	taken   chan struct{}
}

// New returns n turns at a time. A caller that keeps one for more than longest loses it to the next.
func New(n int, longest time.Duration) *Turns {
	return &Turns{longest: longest, taken: make(chan struct{}, n)}
}

// Take waits for a turn, or for the end of ctx, in which case there is none. The caller returns the turn by one
// call of done.
func (t *Turns) Take(ctx context.Context) (back func()) {
	select {
	case <-ctx.Done():
		return func() {}
	case t.taken <- struct{}{}:
	}
	lost := time.AfterFunc(t.longest, t.giveBack)
	return func() {
		if lost.Stop() {
			t.giveBack()
		}
	}
}

func (t *Turns) giveBack() { <-t.taken }
