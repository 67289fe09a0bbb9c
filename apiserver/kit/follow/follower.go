package follow

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
)

// Backoff between failed lists, and between watches that end too soon (client-go's reflector: 800 ms to 30 s).
const (
	minRelist = 50 * time.Millisecond
	maxRelist = 30 * time.Second
)

// Follower lists and watches objects of the API. All fields but Most are required.
type Follower struct {
	Client client.Client
	Clock  clock.Clock
	Log    *zap.Logger
	Name   string // for the log
	// Most is the maximum pause before a list after a failure; 0: 30 s.
	Most time.Duration
}

// Handler receives the objects that a Follower sees, one call at a time. Objects are shared.
type Handler struct {
	// List receives all objects: first, and again after a gap.
	List func(ctx context.Context, objs []client.Object)
	// Event receives each later change: Added, Modified or Deleted.
	Event func(ctx context.Context, typ watch.EventType, obj client.Object)
	// Reached is called when all changes up to a resourceVersion have been handled; it may be nil.
	Reached func(resourceVersion string)
}

// Follow lists, then watches, and starts again after a pause whenever the watch ends, until ctx ends. The pauses
// grow if watches end at once.
func (f Follower) Follow(ctx context.Context, sel client.Selector, h Handler) {
	sel.Bookmarks = h.Reached != nil
	retry := backoff.Retry{First: minRelist, Most: maxRelist}
	if f.Most > 0 {
		retry.Most = f.Most
	}
	handled := false // h.List was called
	for listed := false; ctx.Err() == nil; retry.Wait(ctx, f.Clock) {
		began := f.Clock.Now()
		err := f.once(ctx, sel, h, &listed, &handled)
		if ctx.Err() != nil {
			return
		}
		retry.Ran(f.Clock.Since(began))
		fields := []zap.Field{zap.String("controller", f.Name), zap.String("resource", sel.Resource.Resource), zap.Error(err)}
		if listed {
			f.Log.Debug("watch ended, listing again", fields...) // regularly
		} else {
			f.Log.Warn("list failed, retrying", fields...)
		}
	}
}

// errEnded is the error of a watch that the server closes.
var errEnded = errors.New("watch closed")

// once lists, and watches until the watch ends. It sets listed to whether the list succeeded. A list from a cache is
// handled only if there was none before: it is not newer, and may have less.
func (f Follower) once(ctx context.Context, sel client.Selector, h Handler, listed, handled *bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	objs, revision, err := f.Client.List(ctx, sel)
	if *listed = err == nil; err != nil {
		return err
	}
	if cached := revision == client.CachedRevision; !cached || !*handled {
		h.List(ctx, objs)
		*handled = true
		if !cached {
			h.reached(revision)
		}
	}
	events, err := f.Client.Watch(ctx, sel, revision)
	if err != nil {
		return err
	}
	for e := range events {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		obj, ok := e.Object.(client.Object)
		if !ok {
			continue
		}
		if e.Type != watch.Bookmark {
			h.Event(ctx, e.Type, obj)
		}
		h.reached(obj.GetResourceVersion())
	}
	return errEnded
}

func (h Handler) reached(revision string) {
	if h.Reached != nil {
		h.Reached(revision)
	}
}
