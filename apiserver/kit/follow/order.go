package follow

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
)

// maxBehind is how long a Reconcile waits for a source. A source that takes longer is listing again after a failure, or
// cannot compute the keys of a change; until it advances, Reconcile runs without it.
const maxBehind = 10 * time.Second

// order lets a Reconcile start when the sources of its loop have seen what it must not miss: all changes of all kinds
// up to now, if the Client knows the newest of each kind (client.Ordered), or else what this process has written
// (Tracking). One revision numbers the changes of all kinds, but each source has its own watch, which may lag behind
// the one that woke a key.
type order struct {
	clock   clock.WithTicker
	ordered client.Ordered // nil: nothing is known
	kinds   []schema.GroupVersionResource

	mu    sync.Mutex    // guards what follows
	seen  []int64       // by source: the revision up to which every change has woken its keys; MaxInt64: ignored
	lost  []bool        // by source: passed over until it advances
	moved chan struct{} // closed when a source advances; nil: nobody waits
}

func newOrder(c client.Client, clk clock.WithTicker, kinds []schema.GroupVersionResource) *order {
	ordered, _ := c.(client.Ordered)
	return &order{clock: clk, ordered: ordered, kinds: kinds, seen: make([]int64, len(kinds)),
		lost: make([]bool, len(kinds))}
}

// reached records that the source at i has woken the keys of every change up to a revision.
func (o *order) reached(i int, revision string) {
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return // of an aggregated server
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[i], o.lost[i] = max(o.seen[i], n), false
	if o.moved != nil {
		close(o.moved)
		o.moved = nil
	}
}

// ignore makes the source at i count as one that has seen everything, until expect.
func (o *order) ignore(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[i] = math.MaxInt64
}

// expect makes a source that was ignored count.
func (o *order) expect(i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[i] = 0
}

// begin waits for the sources and returns the context of a Reconcile, for Current and SeesOwnWrites. behind are the
// kinds of sources that took too long.
func (o *order) begin(ctx context.Context) (_ context.Context, behind []string) {
	if o.ordered == nil {
		return ctx, nil
	}
	targets, all := make([]int64, len(o.kinds)), true
	for i, kind := range o.kinds {
		newest, ok := o.ordered.Newest(kind)
		targets[i], all = newest, all && ok
	}
	behind, reached := o.wait(ctx, targets)
	t, tracks := o.ordered.(*tracking)
	return context.WithValue(ctx, sightKey{}, sight{
		current: reached && all,
		own:     reached && (all || tracks && !t.doubtful()),
	}), behind
}

// wait returns when every source has reached its target, after maxBehind, or when ctx ends.
func (o *order) wait(ctx context.Context, targets []int64) (behind []string, reached bool) {
	late := o.clock.NewTimer(maxBehind)
	defer late.Stop()
	for {
		moved, reached := o.waiting(targets)
		if moved == nil {
			return nil, reached
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, false
		case <-late.C():
			return o.giveUp(targets), false
		}
	}
}

// waiting returns a channel that is closed when a source advances; nil: there is none to wait for, and reached reports
// whether all have reached their targets.
func (o *order) waiting(targets []int64) (moved <-chan struct{}, reached bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	reached = true
	for i, target := range targets {
		if o.seen[i] >= target {
			continue
		}
		if reached = false; !o.lost[i] {
			if o.moved == nil {
				o.moved = make(chan struct{})
			}
			return o.moved, false
		}
	}
	return nil, reached
}

// giveUp returns the kinds of the sources that are behind; later calls of wait pass them over.
func (o *order) giveUp(targets []int64) (behind []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, target := range targets {
		if o.seen[i] < target && !o.lost[i] {
			o.lost[i] = true
			behind = append(behind, o.kinds[i].Resource)
		}
	}
	return slices.Compact(behind)
}

// sight is what the sources have seen at the start of a Reconcile.
type sight struct{ current, own bool }

type sightKey struct{}

// Current reports whether every source has seen all changes of all kinds up to the start of the Reconcile that ctx is
// of. It is false if the Client does not know the order of all changes, and if a source is late: what the sources keep
// may then lack objects.
func Current(ctx context.Context) bool {
	s, _ := ctx.Value(sightKey{}).(sight)
	return s.current
}

// SeesOwnWrites reports whether every source has seen everything that earlier Reconciles wrote, as it has if Current.
// Otherwise that is known only with a Client of Tracking.
func SeesOwnWrites(ctx context.Context) bool {
	s, _ := ctx.Value(sightKey{}).(sight)
	return s.own
}
