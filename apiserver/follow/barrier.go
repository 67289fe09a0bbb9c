package follow

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

// maxBehind is how long a Reconcile waits for a source that has not seen all changes.
// A source that takes longer lists again after a failure, or cannot find the keys of a
// change; until it is well the others go on without it.
const maxBehind = 10 * time.Second

// barrier makes one order of the sources of a loop. A revision numbers the changes of all
// kinds, but each source has a watch of its own, and any of them may lag behind the one
// that woke a key. pass lets a Reconcile begin when every source has seen each change
// there is.
//
// The order is known where the Client is an Ordered one. Elsewhere, over HTTP and over a
// store on etcd, pass returns at once: a Reconcile may see one kind earlier than another,
// as with upstream's informers.
type barrier struct {
	clock   clock.WithTicker
	ordered client.Ordered // nil: the order is not known
	kinds   []schema.GroupVersionResource

	mu    sync.Mutex    // guards what follows
	seen  []int64       // by source: every change up to here has woken its keys
	lost  []bool        // by source: not waited for until it has moved on
	moved chan struct{} // closed when a source moves on; nil: nobody waits
}

func newBarrier(c client.Client, clk clock.WithTicker, kinds []schema.GroupVersionResource) *barrier {
	ordered, _ := c.(client.Ordered)
	return &barrier{clock: clk, ordered: ordered, kinds: kinds, seen: make([]int64, len(kinds)), lost: make([]bool, len(kinds))}
}

// reached is the Reached of the source at i; nil where nobody asks.
func (b *barrier) reached(i int) func(revision string) {
	if b.ordered == nil {
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

// pass returns when every source has seen all that had happened when it was called. It
// returns the kinds of those that did not within maxBehind; nil, too, when ctx ends.
func (b *barrier) pass(ctx context.Context) (behind []string) {
	if b.ordered == nil {
		return nil
	}
	targets := make([]int64, len(b.kinds))
	for i, kind := range b.kinds {
		if newest, ok := b.ordered.Newest(kind); ok {
			targets[i] = newest
		}
	}
	moved := b.waiting(targets)
	if moved == nil {
		return nil
	}
	late := b.clock.NewTimer(maxBehind)
	defer late.Stop()
	for ; moved != nil; moved = b.waiting(targets) {
		select {
		case <-moved:
		case <-ctx.Done():
			return nil
		case <-late.C():
			return b.giveUp(targets)
		}
	}
	return nil
}

// waiting returns what closes when a source moves on; nil: all are there.
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

// giveUp names the kinds of the sources that are behind and waits for them no more.
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
