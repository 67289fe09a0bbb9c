package replicaset

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"monopod/controllers/loop"
)

// expectationTTL is how long an event is waited for (upstream
// ExpectationsTimeout); after it the ReplicaSet is synced as it looks.
const expectationTTL = 5 * time.Minute

// expectations counts, for each ReplicaSet, the creations and names the
// deletions whose watch events have not come yet.
type expectations struct {
	clock clock.PassiveClock

	mu sync.Mutex // guards of
	of map[loop.Key]*expectation
}

type expectation struct {
	creations int
	deletions map[string]struct{} // podKeys
	since     time.Time
}

func newExpectations(c clock.PassiveClock) *expectations {
	return &expectations{clock: c, of: map[loop.Key]*expectation{}}
}

// settled: nothing is expected any more, or has been for too long.
func (x *expectations) settled(rs loop.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.of[rs]
	return e == nil || (e.creations <= 0 && len(e.deletions) == 0) || x.clock.Since(e.since) > expectationTTL
}

// expectCreations replaces what was expected by n creations.
func (x *expectations) expectCreations(rs loop.Key, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{creations: n, since: x.clock.Now()}
}

// expectDeletions replaces what was expected by the deletion of these pods.
func (x *expectations) expectDeletions(rs loop.Key, podKeys []string) {
	set := make(map[string]struct{}, len(podKeys))
	for _, k := range podKeys {
		set[k] = struct{}{}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of[rs] = &expectation{deletions: set, since: x.clock.Now()}
}

// created lowers the expected creations by n, seen or given up.
func (x *expectations) created(rs loop.Key, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		e.creations -= n
	}
}

// deleted drops an expected deletion, seen or failed.
func (x *expectations) deleted(rs loop.Key, podKey string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.of[rs]; e != nil {
		delete(e.deletions, podKey)
	}
}

// forget is for a ReplicaSet that is gone.
func (x *expectations) forget(rs loop.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, rs)
}
