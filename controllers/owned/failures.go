package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// The delays between replacements of failed pods are upstream's for DaemonSets.
const (
	firstFailure = time.Second
	mostFailure  = 15 * time.Minute
)

// Place identifies where a pod of an owner failed: a node, or an ordinal. Each generation of the owner has its own
// backoff.
type Place struct {
	Owner      types.UID
	Generation int64
	Name       string
}

// Failures delays the deletion of failed pods with exponential backoff, so that a pod that its node rejects repeatedly
// causes little work.
type Failures struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[Place]attempt
}

type attempt struct {
	at   time.Time
	wait time.Duration // before the next deletion
}

// NewFailures returns an empty Failures.
func NewFailures(c clock.PassiveClock) *Failures {
	return &Failures{clock: c, of: map[Place]attempt{}}
}

// Backoff returns how long to wait before a failed pod may be deleted. When it returns 0, the delay for the place
// doubles, starting with 1 s.
func (f *Failures) Backoff(at Place) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	last, ok := f.of[at]
	switch since := now.Sub(last.at); {
	case ok && since < last.wait:
		return last.wait - since
	case !ok || since > 2*mostFailure:
		f.of[at] = attempt{now, firstFailure}
	default:
		f.of[at] = attempt{now, min(2*last.wait, mostFailure)}
	}
	return 0
}

// Forget removes the failures of an owner from generations before the given one. Call it when the owner has changed
// or is gone.
func (f *Failures) Forget(owner types.UID, before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.of {
		if at.Owner == owner && at.Generation < before {
			delete(f.of, at)
		}
	}
}
