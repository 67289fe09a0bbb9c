package loop

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"monopod/apiserver/client"
)

// Source says what to watch and which keys a change wakes.
type Source[K comparable] struct {
	Selector client.Selector

	// Keys maps a change to the keys it wakes; old is nil for an object that
	// appeared, new for one that went away. An object that was replaced by another
	// under the same name is two changes. Calls come in order, one at a time for a
	// source, and must not block; both objects are shared.
	Keys func(old, new client.Object) []K
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
	queue workqueue.TypedRateLimitingInterface[K]
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
	f.replace(objs)
	synced()
	events, err := f.deps.Client.Watch(ctx, f.src.Selector, rv)
	if err != nil {
		return err
	}
	for e := range events {
		if err := f.handle(e); err != nil {
			return err
		}
	}
	return errors.New("watch closed")
}

// handle applies one watch event.
func (f *follower[K]) handle(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	obj, ok := e.Object.(client.Object)
	if !ok {
		return nil
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		f.set(obj)
	case watch.Deleted:
		delete(f.known, KeyOf(obj))
		f.notify(obj, nil)
	}
	return nil
}

// replace applies a full list: what it lacks is gone.
func (f *follower[K]) replace(objs []client.Object) {
	listed := make(map[Key]struct{}, len(objs))
	for _, obj := range objs {
		listed[KeyOf(obj)] = struct{}{}
	}
	for key, old := range f.known {
		if _, ok := listed[key]; !ok {
			delete(f.known, key)
			f.notify(old, nil)
		}
	}
	for _, obj := range objs {
		f.set(obj)
	}
}

// set makes obj the known state of its key.
func (f *follower[K]) set(obj client.Object) {
	key := KeyOf(obj)
	old, ok := f.known[key]
	f.known[key] = obj
	switch {
	case !ok:
		f.notify(nil, obj)
	case old.GetUID() != obj.GetUID():
		f.notify(old, nil)
		f.notify(nil, obj)
	case old.GetResourceVersion() != obj.GetResourceVersion():
		f.notify(old, obj)
	}
}

func (f *follower[K]) notify(old, new client.Object) {
	for _, key := range f.src.Keys(old, new) {
		f.queue.Add(key)
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
