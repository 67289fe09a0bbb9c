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

	// Keys maps a change to the keys that it wakes; old is nil for a new object, new for a deleted one. An
	// object that was replaced by another under the same name is two changes. Calls come in order, one at a time
	// for a source; both objects are shared. After an error the call is repeated until it succeeds or ctx ends,
	// before any later change.
	Keys func(ctx context.Context, old, new client.Object) ([]K, error)
}

// Plain is a Source's Keys that cannot fail.
func Plain[K comparable](
	keys func(old, new client.Object) []K) func(context.Context, client.Object, client.Object) ([]K, error) {
	return func(_ context.Context, old, new client.Object) ([]K, error) { return keys(old, new), nil }
}

// view adds the keys of each change of a source's objects to the queue. It remembers the last state of each object.
type view[K comparable] struct {
	src  Source[K]
	deps Deps
	name string // of the controller
	add  func(...K)

	known map[Key]client.Object
}

// follow follows the source until ctx ends: synced is called after each full list, reached with the revision up to
// which all keys have been woken.
func (v *view[K]) follow(ctx context.Context, synced func(), reached func(revision string)) {
	v.known = map[Key]client.Object{}
	f := Follower{Client: v.deps.Client, Clock: v.deps.Clock, Log: v.deps.Log, Name: v.name}
	f.Follow(ctx, v.src.Selector, Handler{
		List: func(ctx context.Context, objs []client.Object) {
			v.replace(ctx, objs)
			synced()
		},
		Event: func(ctx context.Context, typ watch.EventType, obj client.Object) {
			if typ != watch.Deleted {
				v.set(ctx, obj)
				return
			}
			delete(v.known, KeyOf(obj))
			v.notify(ctx, obj, nil)
		},
		Reached: reached,
	})
}

// replace applies a full list: objects that it lacks are gone.
func (v *view[K]) replace(ctx context.Context, objs []client.Object) {
	listed := make(map[Key]struct{}, len(objs))
	for _, obj := range objs {
		listed[KeyOf(obj)] = struct{}{}
	}
	for key, old := range v.known {
		if _, ok := listed[key]; !ok {
			delete(v.known, key)
			v.notify(ctx, old, nil)
		}
	}
	for _, obj := range objs {
		v.set(ctx, obj)
	}
}

// set makes obj the known state of its key.
func (v *view[K]) set(ctx context.Context, obj client.Object) {
	key := KeyOf(obj)
	old, ok := v.known[key]
	v.known[key] = obj
	switch {
	case !ok:
		v.notify(ctx, nil, obj)
	case old.GetUID() != obj.GetUID():
		v.notify(ctx, old, nil)
		v.notify(ctx, nil, obj)
	case old.GetResourceVersion() != obj.GetResourceVersion():
		v.notify(ctx, old, obj)
	}
}

// notify wakes the keys of a change, once Keys has returned them.
func (v *view[K]) notify(ctx context.Context, old, new client.Object) {
	for retry := (backoff.Retry{First: minRelist, Most: maxRelist}); ctx.Err() == nil; retry.Wait(ctx, v.deps.Clock) {
		keys, err := v.src.Keys(ctx, old, new)
		if err == nil {
			v.add(keys...)
			return
		}
		if ctx.Err() == nil {
			v.deps.Log.Warn("failed to find the keys of a change, retrying", zap.String("controller", v.name),
				zap.String("resource", v.src.Selector.Resource.Resource), zap.Error(err))
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
