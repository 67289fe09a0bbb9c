package reload

import (
	"context"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/guard"
	"monopod/store"
)

// Configuration is what some kinds configure: all their objects are read again when one of them has changed.
type Configuration struct {
	Follower
	Kinds []schema.GroupVersionResource
	Load  func(context.Context) error
}

// Configurations are several.
type Configurations []Configuration

// Load reads all of them, at the start.
func (cs Configurations) Load(ctx context.Context) error {
	for _, c := range cs {
		if err := c.Load(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Run follows the objects until ctx ends. Writes through the registry take effect at once; this is for the writes of
// other servers on the same state.
func (cs Configurations) Run(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	for _, c := range cs {
		load := func(ctx context.Context) (int64, error) {
			rev := c.Store.Revision()
			return rev, c.Load(ctx)
		}
		for _, gvr := range c.Kinds {
			group.Do(func() error {
				return c.Follower.Run(ctx, store.Selector{Resource: gvr.Resource}, load, func(*store.Event) { c.reload(ctx) })
			})
		}
	}
	return group.Wait()
}

// Written makes a write of a resource take effect, if it configures something.
func (cs Configurations) Written(ctx context.Context, gvr schema.GroupVersionResource) {
	for _, c := range cs {
		if slices.Contains(c.Kinds, gvr) {
			c.reload(ctx)
		}
	}
}

func (c Configuration) reload(ctx context.Context) {
	if err := c.Load(context.WithoutCancel(ctx)); err != nil {
		c.Log.Warn("failed to read what configures admission", zap.String("resource", c.Kinds[0].Resource), zap.Error(err))
	}
}
