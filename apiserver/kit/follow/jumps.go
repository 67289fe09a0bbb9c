package follow

import (
	"context"
	"sync"
)

// Jumps wakes the loops when the wall clock has jumped: it was set, or the machine has slept. Timers follow the
// monotonic clock, which notices neither. Every key that waits for a time runs at once and computes again how long
// it has to wait. The zero value is ready to use.
type Jumps struct {
	mu     sync.Mutex // guards jumped
	jumped chan struct{}
}

// Run wakes the loops for each value of jumps, until that is closed or ctx ends.
func (j *Jumps) Run(ctx context.Context, jumps <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-jumps:
			if !ok {
				return
			}
			j.wake()
		}
	}
}

func (j *Jumps) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.jumped != nil {
		close(j.jumped)
		j.jumped = nil
	}
}

// next returns a channel that is closed at the next jump. A nil Jumps returns nil.
func (j *Jumps) next() <-chan struct{} {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.jumped == nil {
		j.jumped = make(chan struct{})
	}
	return j.jumped
}
