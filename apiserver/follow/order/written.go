package order

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
)

// unknownFor is how long a Reconcile must not rely on its sources after a write that may have happened or not
// (upstream ExpectationsTimeout).
const unknownFor = 5 * time.Minute

// Tracking returns a Client for controllers: before a loop calls Reconcile, its sources have seen what earlier
// Reconciles of the same key wrote with it (SeesOwnWrites). It returns c itself if c knows the order of all changes,
// which includes that. Resource versions of c must be revisions that grow with every write, as etcd's.
func Tracking(c client.Client) client.Client {
	if ordered, ok := c.(client.Ordered); ok {
		if _, known := ordered.Newest(client.Pods); known {
			return c
		}
	}
	return tracking{c}
}

// tracking notes the revisions of writes in the recorder of their context.
type tracking struct{ client.Client }

// Create implements client.Client.
func (t tracking) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	created, err := t.Client.Create(ctx, obj)
	if kind, ok := client.ResourceOf(obj); ok {
		note(ctx, kind, created, err)
	}
	return created, err
}

// Update implements client.Client.
func (t tracking) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	var refused error // by change
	updated, err := t.Client.Update(ctx, ref, func(cur client.Object) (next client.Object, err error) {
		next, refused = change(cur)
		return next, refused
	})
	if refused == nil || !errors.Is(err, refused) {
		note(ctx, ref.Resource, updated, err)
	}
	return updated, err
}

// Delete implements client.Client.
func (t tracking) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	deleted, err := t.Client.Delete(ctx, ref, opts)
	note(ctx, ref.Resource, deleted, err)
	return deleted, err
}

// recorder collects the writes of one Reconcile.
type recorder struct {
	seen bool // whether the sources have seen the writes of earlier Reconciles of the key

	mu      sync.Mutex // guards what follows
	newest  map[schema.GroupVersionResource]int64
	unknown bool // a write may have happened or not
}

type recorderKey struct{}

// note adds the result of a write to the recorder of ctx, if it has one.
func note(ctx context.Context, kind schema.GroupVersionResource, obj client.Object, err error) {
	rec, ok := ctx.Value(recorderKey{}).(*recorder)
	if !ok {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err != nil {
		var status apierrors.APIStatus
		rec.unknown = rec.unknown || !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
		return
	}
	if rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64); err == nil { // otherwise a Binding, an Eviction
		rec.newest[kind] = max(rec.newest[kind], rev)
	}
}

// written contains the writes of each key that a source may not have seen yet.
type written[K comparable] struct {
	barrier *barrier

	mu    sync.Mutex // guards what follows
	of    map[K]writes
	sweep int // the size of of at which those that were seen are removed
}

// writes are the last writes of a key.
type writes struct {
	targets []int64   // by source
	unknown time.Time // of the last write that may have happened or not
}

// minSweep is the lowest number of keys at which written is swept.
const minSweep = 1000

// newWritten returns nil if the Client is not a tracking one, or a source does not show every object of its kind: it
// may never show a write.
func newWritten[K comparable](b *barrier, sources []client.Selector) *written[K] {
	if !b.tracks {
		return nil
	}
	for _, s := range sources {
		if s.Namespace != "" || s.Labels != nil && !s.Labels.Empty() || s.Fields != nil && !s.Fields.Empty() {
			return nil
		}
	}
	return &written[K]{barrier: b, of: map[K]writes{}, sweep: minSweep}
}

// pass waits until the sources have seen the writes of key, as barrier.wait. It returns the recorder for the next
// Reconcile.
func (w *written[K]) pass(ctx context.Context, key K) (rec *recorder, behind []string) {
	w.mu.Lock()
	last, ok := w.of[key]
	w.mu.Unlock()
	rec = &recorder{newest: map[schema.GroupVersionResource]int64{}, seen: true}
	if !ok {
		return rec, nil
	}
	behind, reached := w.barrier.wait(ctx, last.targets)
	rec.seen = reached && !w.doubtful(last)
	return rec, behind
}

// doubtful reports whether a write of the last minutes may have happened or not.
func (w *written[K]) doubtful(last writes) bool {
	return !last.unknown.IsZero() && w.barrier.clock.Since(last.unknown) < unknownFor
}

// note stores the writes of a Reconcile.
func (w *written[K]) note(key K, rec *recorder) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.of[key]
	targets := make([]int64, len(w.barrier.kinds))
	copy(targets, next.targets)
	if rec.unknown {
		next.unknown = w.barrier.clock.Now()
	}
	for i, kind := range w.barrier.kinds {
		targets[i] = max(targets[i], rec.newest[kind])
	}
	next.targets = targets
	w.of[key] = next
	if w.done(next) {
		delete(w.of, key)
	}
	if len(w.of) >= w.sweep {
		for k, old := range w.of {
			if w.done(old) {
				delete(w.of, k)
			}
		}
		w.sweep = max(minSweep, 2*len(w.of))
	}
}

// done reports whether the writes can be forgotten.
func (w *written[K]) done(last writes) bool {
	return !w.doubtful(last) && w.barrier.reachedAll(last.targets)
}
