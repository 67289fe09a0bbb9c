package follow

import (
	"context"
	"sync"
)

// Jumps wakes the loops when the wall clock has jumped: it was set, or the machine has slept. Timers follow the
// monotonic clock, which notices neither. Every key that waits for a time runs at once and computes again how long
// it has to wait.
type Jumps struct {
	mu    sync.Mutex // guards what follows
	wakes map[int]func()
	next  int
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
			j.jumped()
		}
	}
}

func (j *Jumps) jumped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, wake := range j.wakes {
		wake()
	}
}

// each calls wake after each jump until remove is called. A nil Jumps calls nothing.
func (j *Jumps) each(wake func()) (remove func()) {
	if j == nil {
		return func() {}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.wakes == nil {
		j.wakes = map[int]func(){}
	}
	id := j.next
	j.next++
	j.wakes[id] = wake
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.wakes, id)
	}
}
