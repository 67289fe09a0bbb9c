package follow

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
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
)

// unknownFor is how long a Reconcile must not rely on its sources after a write that may have happened or not
// (upstream ExpectationsTimeout).
const unknownFor = 5 * time.Minute

// Tracking returns a Client for controllers whose Newest is at least the last write with it, so that a loop calls
// Reconcile when its sources have seen those writes (SeesOwnWrites). It returns c itself if c knows the newest change
// of each kind. Resource versions of c must be revisions that grow with every write, as etcd's, and its watches must
// send the bookmarks that they are asked for.
func Tracking(c client.Client, clk clock.PassiveClock) client.Client {
	if ordered, ok := c.(client.Ordered); ok {
		if _, known := ordered.Newest(client.Pods); known {
			return c
		}
	}
	return &tracking{Client: c, clock: clk, newest: map[schema.GroupVersionResource]int64{}}
}

type tracking struct {
	client.Client
	clock clock.PassiveClock

	mu      sync.Mutex // guards what follows
	newest  map[schema.GroupVersionResource]int64
	unknown time.Time // of the last write that may have happened or not
}

var _ client.Ordered = (*tracking)(nil)

// Create implements client.Client.
func (t *tracking) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	created, err := t.Client.Create(ctx, obj)
	if kind, ok := client.ResourceOf(obj); ok {
		t.note(kind, created, err)
	}
	return created, err
}

// Update implements client.Client.
func (t *tracking) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	var refused error // by change
	updated, err := t.Client.Update(ctx, ref, func(cur client.Object) (next client.Object, err error) {
		next, refused = change(cur)
		return next, refused
	})
	if refused == nil || !errors.Is(err, refused) {
		t.note(ref.Resource, updated, err)
	}
	return updated, err
}

// Delete implements client.Client.
func (t *tracking) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	deleted, err := t.Client.Delete(ctx, ref, opts)
	t.note(ref.Resource, deleted, err)
	return deleted, err
}

// note records the result of a write.
func (t *tracking) note(kind schema.GroupVersionResource, obj client.Object, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError {
			t.unknown = t.clock.Now()
		}
		return
	}
	if rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64); err == nil { // otherwise a Binding, an Eviction
		t.newest[kind] = max(t.newest[kind], rev)
	}
}

// Newest implements client.Ordered.
func (t *tracking) Newest(kind schema.GroupVersionResource) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest[kind], false
}

// doubtful reports whether a write of the last minutes may have happened or not.
func (t *tracking) doubtful() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.unknown.IsZero() && t.clock.Since(t.unknown) < unknownFor
}
