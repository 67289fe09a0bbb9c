package follow

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
)

// Source says what to watch and which keys a change wakes.
type Source[K comparable] struct {
	Selector client.Selector

	// Keys maps a change to the keys it wakes; old is nil for an object that
	// appeared, new for one that went away. An object that was replaced by another
	// under the same name is two changes. Calls come in order, one at a time for a
	// source; both objects are shared. After an error the call is made again until it
	// has none or ctx ends, and no later change comes before that.
	Keys func(ctx context.Context, old, new client.Object) ([]K, error)
}

// Plain is a Source's Keys that needs to ask nobody.
func Plain[K comparable](keys func(old, new client.Object) []K) func(context.Context, client.Object, client.Object) ([]K, error) {
	return func(_ context.Context, old, new client.Object) ([]K, error) { return keys(old, new), nil }
}

// Backoff between failed lists, and between watches that end too soon;
// client-go's reflector has 800 ms to 30 s.
const (
	minRelist = 50 * time.Millisecond
	maxRelist = 30 * time.Second
)

// follower keeps one source's view current and feeds the queue.
type follower[K comparable] struct {
	src   Source[K]
	deps  Deps
	queue *queue[K]
	name  string

	known map[Key]client.Object
}

// run lists and watches until ctx ends, and lists again whenever the watch ends.
// It calls synced once, after the first full list or when it gives up.
func (f *follower[K]) run(ctx context.Context, synced func()) {
	f.known = map[Key]client.Object{}
	pending := true
	defer func() {
		if pending {
			synced()
		}
	}()
	for delay := minRelist; ctx.Err() == nil; {
		began := f.deps.Clock.Now()
		err := f.listAndWatch(ctx, func() {
			if pending {
				pending = false
				synced()
			}
		})
		if ctx.Err() != nil {
			return
		}
		if f.deps.Clock.Since(began) > maxRelist {
			delay = minRelist
		}
		f.deps.Log.Debug("watch ended, listing again", zap.String("controller", f.name),
			zap.String("resource", f.src.Selector.Resource.Resource), zap.Error(err))
		delay = f.pause(ctx, delay)
	}
}

// pause waits for delay and returns the next one.
func (f *follower[K]) pause(ctx context.Context, delay time.Duration) time.Duration {
	select {
	case <-ctx.Done():
	case <-f.deps.Clock.After(delay):
	}
	return min(2*delay, maxRelist)
}

func (f *follower[K]) listAndWatch(ctx context.Context, synced func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objs, rv, err := f.deps.Client.List(ctx, f.src.Selector)
	if err != nil {
		return err
	}
	f.replace(ctx, objs)
	synced()
	events, err := f.deps.Client.Watch(ctx, f.src.Selector, rv)
	if err != nil {
		return err
	}
	for e := range events {
		if err := f.handle(ctx, e); err != nil {
			return err
		}
	}
	return errors.New("watch closed")
}

// handle applies one watch event.
func (f *follower[K]) handle(ctx context.Context, e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	obj, ok := e.Object.(client.Object)
	if !ok {
		return nil
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		f.set(ctx, obj)
	case watch.Deleted:
		delete(f.known, KeyOf(obj))
		f.notify(ctx, obj, nil)
	}
	return nil
}

// replace applies a full list: what it lacks is gone.
func (f *follower[K]) replace(ctx context.Context, objs []client.Object) {
	listed := make(map[Key]struct{}, len(objs))
	for _, obj := range objs {
		listed[KeyOf(obj)] = struct{}{}
	}
	for key, old := range f.known {
		if _, ok := listed[key]; !ok {
			delete(f.known, key)
			f.notify(ctx, old, nil)
		}
	}
	for _, obj := range objs {
		f.set(ctx, obj)
	}
}

// set makes obj the known state of its key.
func (f *follower[K]) set(ctx context.Context, obj client.Object) {
	key := KeyOf(obj)
	old, ok := f.known[key]
	f.known[key] = obj
	switch {
	case !ok:
		f.notify(ctx, nil, obj)
	case old.GetUID() != obj.GetUID():
		f.notify(ctx, old, nil)
		f.notify(ctx, nil, obj)
	case old.GetResourceVersion() != obj.GetResourceVersion():
		f.notify(ctx, old, obj)
	}
}

// notify wakes the keys of a change, once they are known.
func (f *follower[K]) notify(ctx context.Context, old, new client.Object) {
	for delay := minRelist; ctx.Err() == nil; delay = f.pause(ctx, delay) {
		keys, err := f.src.Keys(ctx, old, new)
		if err == nil {
			for _, key := range keys {
				f.queue.Add(key)
			}
			return
		}
		if ctx.Err() == nil {
			f.deps.Log.Warn("cannot tell what a change is about, trying again", zap.String("controller", f.name),
				zap.String("resource", f.src.Selector.Resource.Resource), zap.Error(err))
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
