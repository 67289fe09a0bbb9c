// Package turns bounds how many do something demanding at a time, without letting
// those that hang hold up the others for good.
package turns

import (
	"context"
	"time"
)

// Turns are taken and given back.
type Turns struct {
	longest time.Duration
	taken   chan struct{}
}

// New has n turns at a time. Who keeps one longer than longest has lost it to the
// next in line.
func New(n int, longest time.Duration) *Turns {
	return &Turns{longest: longest, taken: make(chan struct{}, n)}
}

// Take waits for a turn, or for the end of ctx: then there is none to wait for. Who
// calls back, once, has had it.
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
