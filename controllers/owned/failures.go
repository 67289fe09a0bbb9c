package owned

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// How often failed pods of a place are replaced, upstream's figures for DaemonSets.
const (
	firstFailure = time.Second
	mostFailure  = 15 * time.Minute
)

// Place is where a pod of an owner failed: a node, or an ordinal. Another generation of the
// owner starts anew.
type Place struct {
	Owner      types.UID
	Generation int64
	Name       string
}

// Failures space out the deletions of failed pods, so that a pod which its node rejects
// again and again takes little work.
type Failures struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[Place]attempt
}

type attempt struct {
	at   time.Time
	wait time.Duration // until the next one
}

// NewFailures returns an empty one.
func NewFailures(c clock.PassiveClock) *Failures {
	return &Failures{clock: c, of: map[Place]attempt{}}
}

// Tried returns how long a failed pod must wait for its deletion. If it is 0, the next one
// of the place waits twice as long as this one has, 1 s at first.
func (f *Failures) Tried(at Place) time.Duration {
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

// Forget is for an owner that is gone, or has changed: it forgets what failed before a
// generation of it.
func (f *Failures) Forget(owner types.UID, before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.of {
		if at.Owner == owner && at.Generation < before {
			delete(f.of, at)
		}
	}
}
