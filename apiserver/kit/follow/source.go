package follow

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
)

// Source defines what to watch and which keys a change wakes.
type Source[K comparable] struct {
	Selector client.Selector
	// Optional sources are not followed before FollowOptional is called; until then they count as seen.
	Optional bool

	// Keys maps a change to the keys that it wakes. old is nil for a new object, new is nil for a deleted one. An object
	// that was replaced by another of the same name causes two changes. Calls come in order, one at a time for a source.
	// Both objects are shared. After an error the call is repeated until it succeeds or ctx ends, before any later change.
	Keys func(ctx context.Context, old, new client.Object) ([]K, error)
}

// Plain returns a Source's Keys that cannot fail.
func Plain[K comparable](
	keys func(old, new client.Object) []K) func(context.Context, client.Object, client.Object) ([]K, error) {
	return func(_ context.Context, old, new client.Object) ([]K, error) { return keys(old, new), nil }
}

// sourceWatch adds the keys of each change of a source's objects to the queue. It keeps the last state of each object.
type sourceWatch[K comparable] struct {
	src  Source[K]
	deps Deps
	name string // of the controller
	add  func(...K)

	last map[Key]client.Object
}

// follow follows the source until ctx ends: synced is called after each full list, reached with the revision up to
// which all keys have been woken.
func (w *sourceWatch[K]) follow(ctx context.Context, synced func(), reached func(revision string)) {
	w.last = map[Key]client.Object{}
	f := Follower{Client: w.deps.Client, Clock: w.deps.Clock, Log: w.deps.Log, Name: w.name}
	f.Follow(ctx, w.src.Selector, Handler{
		List: func(ctx context.Context, objs []client.Object) {
			w.replace(ctx, objs)
			synced()
		},
		Event: func(ctx context.Context, typ watch.EventType, obj client.Object) {
			if typ != watch.Deleted {
				w.set(ctx, obj)
				return
			}
			delete(w.last, KeyOf(obj))
			w.notify(ctx, obj, nil)
		},
		Reached: reached,
	})
}

// replace applies a full list: objects that it lacks have been deleted.
func (w *sourceWatch[K]) replace(ctx context.Context, objs []client.Object) {
	listed := make(map[Key]struct{}, len(objs))
	for _, obj := range objs {
		listed[KeyOf(obj)] = struct{}{}
	}
	for key, old := range w.last {
		if _, ok := listed[key]; !ok {
			delete(w.last, key)
			w.notify(ctx, old, nil)
		}
	}
	for _, obj := range objs {
		w.set(ctx, obj)
	}
}

// set makes obj the last state of its key.
func (w *sourceWatch[K]) set(ctx context.Context, obj client.Object) {
	key := KeyOf(obj)
	old, ok := w.last[key]
	w.last[key] = obj
	switch {
	case !ok:
		w.notify(ctx, nil, obj)
	case old.GetUID() != obj.GetUID():
		w.notify(ctx, old, nil)
		w.notify(ctx, nil, obj)
	case old.GetResourceVersion() != obj.GetResourceVersion():
		w.notify(ctx, old, obj)
	}
}

// notify wakes the keys of a change, once Keys has returned them.
func (w *sourceWatch[K]) notify(ctx context.Context, old, new client.Object) {
	for retry := (backoff.Retry{First: minRelist, Most: maxRelist}); ctx.Err() == nil; retry.Wait(ctx, w.deps.Clock) {
		keys, err := w.src.Keys(ctx, old, new)
		if err == nil {
			w.add(keys...)
			return
		}
		if ctx.Err() == nil {
			w.deps.Log.Warn("failed to find the keys of a change, retrying", zap.String("controller", w.name),
				zap.String("resource", w.src.Selector.Resource.Resource), zap.Error(err))
		}
	}
}

// OnAny wakes the key of any object that changes.
func OnAny(old, new client.Object) []Key {
	if new == nil {
		return []Key{KeyOf(old)}
	}
	return []Key{KeyOf(new)}
}

// OnNew wakes the name of a cluster-scoped object that has appeared.
func OnNew(old, new client.Object) []string {
	if old == nil {
		return []string{new.GetName()}
	}
	return nil
}
