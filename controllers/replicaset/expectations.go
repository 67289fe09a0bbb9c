package replicaset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// expectationTTL is how long an event is waited for (upstream
// ExpectationsTimeout); after it the ReplicaSet is synced as it looks.
const expectationTTL = 5 * time.Minute

// expectations counts, for each ReplicaSet, the creations and names the
// deletions whose watch events have not come yet. A ReplicaSet is its UID: another
// of the name may be there before the end of the first has been seen.
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

// settled: nothing is expected any more, or has been for too long.
func (x *expectations) settled(rs types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[rs]
	return e == nil || x.clock.Since(e.since) > expectationTTL
}

// expectCreations replaces what was expected by n creations.
func (x *expectations) expectCreations(rs types.UID, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{creations: n, since: x.clock.Now()}
}

// expectDeletions replaces what was expected by the deletion of these pods.
func (x *expectations) expectDeletions(rs types.UID, podKeys []string) {
	set := make(map[string]struct{}, len(podKeys))
	for _, k := range podKeys {
		set[k] = struct{}{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{deletions: set, since: x.clock.Now()}
}

// created lowers the expected creations by n, seen or given up.
func (x *expectations) created(rs types.UID, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		e.creations -= n
		x.tidy(rs, e)
	}
}

// deleted drops an expected deletion, seen or failed.
func (x *expectations) deleted(rs types.UID, podKey string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		delete(e.deletions, podKey)
		x.tidy(rs, e)
	}
}

// tidy drops what was met; mu is held.
func (x *expectations) tidy(rs types.UID, e *expectation) {
	if e.creations <= 0 && len(e.deletions) == 0 {
		delete(x.of, rs)
	}
}

// forget is for a ReplicaSet that is gone.
func (x *expectations) forget(rs types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, rs)
}
