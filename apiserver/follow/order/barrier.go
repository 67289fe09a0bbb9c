package order

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
)

// maxBehind is how long a Reconcile waits for a source that has not seen all changes. A source that takes longer
// is listing again after a failure, or cannot compute the keys of a change; until it recovers, Reconcile runs
// without it.
const maxBehind = 10 * time.Second

// barrier orders the sources of a loop. One revision numbers the changes of all kinds, but each source has its
// own watch, which may lag behind the one that woke a key. pass lets a Reconcile start when every source has
// seen all changes up to now.
//
// The order is known if the Client is an Ordered one. With HTTP and with a store on etcd, pass returns at once:
// a Reconcile may see one kind earlier than another, as with upstream's informers. There, wait makes a Reconcile see
// at least what earlier ones of its key have written.
type barrier struct {
	clock   clock.WithTicker
	ordered client.Ordered // nil: the order is not known
	tracks  bool           // the Client is a tracking one
	kinds   []schema.GroupVersionResource

	mu    sync.Mutex    // guards what follows
	seen  []int64       // by source: the revision up to which every change has woken its keys
	lost  []bool        // by source: passed over until it advances
	moved chan struct{} // closed when a source advances; nil: no waiter
}

func newBarrier(c client.Client, clk clock.WithTicker, kinds []schema.GroupVersionResource) *barrier {
	ordered, _ := c.(client.Ordered)
	_, tracks := c.(tracking)
	return &barrier{clock: clk, ordered: ordered, tracks: tracks, kinds: kinds, seen: make([]int64, len(kinds)), lost: make([]bool, len(kinds))}
}

// reached is Order.Reached.
func (b *barrier) reached(i int) func(revision string) {
	if b.ordered == nil && !b.tracks {
		return nil
	}
	return func(revision string) {
		n, err := strconv.ParseInt(revision, 10, 64)
		if err != nil {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen[i], b.lost[i] = max(b.seen[i], n), false
		if b.moved != nil {
			close(b.moved)
			b.moved = nil
		}
	}
}

// pass returns when every source has seen all changes before the call. It returns the kinds of sources that did
// not within maxBehind; nil if ctx ends. current reports whether all sources have, as far as the order is known.
func (b *barrier) pass(ctx context.Context) (behind []string, current bool) {
	if b.ordered == nil {
		return nil, false
	}
	targets, known := make([]int64, len(b.kinds)), true
	for i, kind := range b.kinds {
		newest, ok := b.ordered.Newest(kind)
		targets[i], known = newest, known && ok
	}
	behind, reached := b.wait(ctx, targets)
	return behind, known && reached
}

// wait returns when every source has reached its target. It returns the kinds of sources that did not within
// maxBehind; nil if ctx ends.
func (b *barrier) wait(ctx context.Context, targets []int64) (behind []string, reached bool) {
	moved := b.waiting(targets)
	if moved == nil {
		return nil, b.reachedAll(targets)
	}
	late := b.clock.NewTimer(maxBehind)
	defer late.Stop()
	for ; moved != nil; moved = b.waiting(targets) {
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, false
		case <-late.C():
			return b.giveUp(targets), false
		}
	}
	return nil, b.reachedAll(targets)
}

// reachedAll reports whether the sources have reached their targets, those that were passed over included.
func (b *barrier) reachedAll(targets []int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, target := range targets {
		if b.seen[i] < target {
			return false
		}
	}
	return true
}

// waiting returns a channel that closes when a source advances; nil if all have reached their targets.
func (b *barrier) waiting(targets []int64) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, target := range targets {
		if b.seen[i] < target && !b.lost[i] {
			if b.moved == nil {
				b.moved = make(chan struct{})
			}
			return b.moved
		}
	}
	return nil
}

// giveUp returns the kinds of the sources that are behind; later calls do not wait for them.
func (b *barrier) giveUp(targets []int64) (behind []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, target := range targets {
		if b.seen[i] < target && !b.lost[i] {
			b.lost[i] = true
			behind = append(behind, b.kinds[i].Resource)
		}
	}
	return slices.Compact(behind)
}
