// Package reload keeps configuration that is stored in the API up to date with the store.
package reload

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/store"
)

// Follower follows changes in a store.
type Follower struct {
	Store store.Store
	Clock clock.WithDelayedExecution
	Log   *zap.Logger
}

// Run calls load, which returns a revision, and then calls each for every later change of the selected objects. After
// an error it waits and starts again. It returns when ctx ends.
func (f Follower) Run(ctx context.Context, sel store.Selector, load func(context.Context) (int64, error),
	each func(*store.Event)) error {
	retry := backoff.Retry{First: time.Second, Most: time.Minute}
	for {
		var changes *store.Changes
		rev, err := load(ctx)
		if err == nil {
			changes, err = f.Store.Watch(ctx, sel, rev)
		}
		if err == nil {
			changes.Each(ctx, func(ev *store.Event) bool {
				if !ev.Lagged() && !ev.Progress() {
					each(ev)
					retry.Reset()
				}
				return true
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		f.Log.Warn("failed to watch API configuration, retrying", zap.String("resource", sel.Resource),
			zap.Error(err))
		if !retry.Wait(ctx, f.Clock) {
			return nil
		}
	}
}
