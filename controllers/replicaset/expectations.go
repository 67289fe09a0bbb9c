package replicaset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// expectationTTL is how long a sync waits for an expected event (upstream ExpectationsTimeout). After it the
// ReplicaSet is synced with the pods in the index.
const expectationTTL = 5 * time.Minute

// expectations contains, for each ReplicaSet, the number of creations and the keys of deletions whose watch events
// have not arrived yet. A ReplicaSet is identified by its UID: its successor of the same name may appear before the
// end of the first has been observed.
type expectations struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[types.UID]*expectation
}

type expectation struct {
	creations int
	deletions map[string]struct{} // podKeys
	since     time.Time
}

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{clock: c, of: map[types.UID]*expectation{}}
}

// settled reports whether all expectations are met, or have waited for too long.
func (x *expectations) settled(rs types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[rs]
	return e == nil || x.clock.Since(e.since) > expectationTTL
}

// expectCreations replaces the expectations by n creations.
func (x *expectations) expectCreations(rs types.UID, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{creations: n, since: x.clock.Now()}
}

// expectDeletions replaces the expectations by the deletion of these pods.
func (x *expectations) expectDeletions(rs types.UID, podKeys []string) {
	set := make(map[string]struct{}, len(podKeys))
	for _, k := range podKeys {
		set[k] = struct{}{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{deletions: set, since: x.clock.Now()}
}

// created lowers the expected creations by n: they were observed or have failed.
func (x *expectations) created(rs types.UID, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		e.creations -= n
		x.tidy(rs, e)
	}
}

// deleted removes an expected deletion that was observed or has failed.
func (x *expectations) deleted(rs types.UID, podKey string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		delete(e.deletions, podKey)
		x.tidy(rs, e)
	}
}

// tidy removes met expectations; the caller holds mu.
func (x *expectations) tidy(rs types.UID, e *expectation) {
	if e.creations <= 0 && len(e.deletions) == 0 {
		delete(x.of, rs)
	}
}

// forget removes the expectations of a ReplicaSet that no longer exists.
func (x *expectations) forget(rs types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, rs)
}
