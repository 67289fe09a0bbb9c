// Package order lets a Reconcile start when the sources of its loop have seen what it must not miss: all changes of all kinds up
// to now, if the Client knows their order, or else what earlier Reconciles of the same key have written.
package order

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
)

// Order is that of the sources of one loop, whose keys are of type K.
type Order[K comparable] struct {
	barrier *barrier
	written *written[K] // nil: not known
}

// New returns the order of sources that select these.
func New[K comparable](c client.Client, clk clock.WithTicker, sources []client.Selector) *Order[K] {
	kinds := make([]schema.GroupVersionResource, len(sources))
	for i, sel := range sources {
		kinds[i] = sel.Resource
	}
	b := newBarrier(c, clk, kinds)
	return &Order[K]{barrier: b, written: newWritten[K](b, sources)}
}

// Reached returns the function that the source at i calls with each revision up to which all keys have been woken; nil if
// nothing waits for it.
func (o *Order[K]) Reached(i int) func(revision string) { return o.barrier.reached(i) }

// Begin waits for the sources and returns the context of a Reconcile of key, for Current and SeesOwnWrites, after which end must
// be called. behind are the kinds of sources that took too long.
func (o *Order[K]) Begin(ctx context.Context, key K) (_ context.Context, behind []string, end func()) {
	behind, current := o.barrier.pass(ctx)
	end = func() {}
	if o.written != nil {
		var rec *recorder
		rec, behind = o.written.pass(ctx, key)
		ctx = context.WithValue(ctx, recorderKey{}, rec)
		end = func() { o.written.note(key, rec) }
	}
	if current {
		ctx = context.WithValue(ctx, currentKey{}, true)
	}
	return ctx, behind, end
}

type currentKey struct{}

// Current reports whether every source has seen all changes of all kinds up to the start of the Reconcile that ctx
// is of. It is false if the Client is not client.Ordered, and if a source is late: what the sources keep may then
// lack what an earlier Reconcile of the same key created.
func Current(ctx context.Context) bool { return ctx.Value(currentKey{}) != nil }

// SeesOwnWrites reports whether the sources have seen everything that earlier Reconciles of the same key wrote, as they
// have if Current. Otherwise that is known only of a Client of Tracking.
func SeesOwnWrites(ctx context.Context) bool {
	rec, ok := ctx.Value(recorderKey{}).(*recorder)
	return Current(ctx) || ok && rec.seen
}
