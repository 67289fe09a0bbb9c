package source

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
	"monopod/apiserver/process/backoff"
)

// Follower follows kinds of objects in the API.
type Follower struct {
	Client client.Client
	Clock  clock.Clock
	Log    *zap.Logger
}

// Handler takes what a Follower sees; each returns false to stop.
type Handler struct {
	List func(ctx context.Context, objs []client.Object) bool
	One  func(ctx context.Context, ev watch.Event) bool
}

// Follow lists, then watches, and starts again, after a pause, whenever the watch
// ends, until ctx does or the handler has enough. Watches that end at once are
// opened ever less often.
func (f Follower) Follow(ctx context.Context, sel client.Selector, h Handler) {
	for delay := backoff.WriteInitial; ; delay = min(2*delay, backoff.WriteMax) {
		began := f.Clock.Now()
		objs, rev, err := f.Client.List(ctx, sel)
		if err == nil {
			if !h.List(ctx, objs) || !f.watch(ctx, sel, rev, h) {
				return
			}
		} else if ctx.Err() == nil {
			f.Log.Warn("cannot list", zap.String("resource", sel.Resource.Resource), zap.Error(err))
		}
		if f.Clock.Since(began) > backoff.WriteMax {
			delay = backoff.WriteInitial
		}
		if !backoff.Sleep(ctx, f.Clock, delay) {
			return
		}
	}
}

// watch is false when ctx is over.
func (f Follower) watch(ctx context.Context, sel client.Selector, rev string, h Handler) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := f.Client.Watch(ctx, sel, rev)
	if err != nil {
		return ctx.Err() == nil
	}
	for ev := range events {
		if ev.Type == watch.Error {
			break
		}
		if !h.One(ctx, ev) {
			return false
		}
	}
	return ctx.Err() == nil
}
