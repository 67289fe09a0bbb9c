package reload

import (
	"context"
	"slices"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/guard"
	"monopod/store"
)

// Configuration loads all objects of some kinds again when one of them has changed.
type Configuration struct {
	Follower
	Kinds []schema.GroupVersionResource
	Load  func(context.Context) error
}

// Configurations is a list of Configurations that load and run together.
type Configurations []Configuration

// Load loads all configurations.
func (cs Configurations) Load(ctx context.Context) error {
	for _, c := range cs {
		if err := c.Load(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Run reloads configurations on changes by other servers on the same store, until ctx ends. Writes through this
// registry take effect by Written.
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

// Written reloads the configurations that the written resource belongs to.
func (cs Configurations) Written(ctx context.Context, gvr schema.GroupVersionResource) {
	for _, c := range cs {
		if slices.Contains(c.Kinds, gvr) {
			c.reload(ctx)
		}
	}
}

func (c Configuration) reload(ctx context.Context) {
	if err := c.Load(context.WithoutCancel(ctx)); err != nil {
		c.Log.Warn("failed to load the admission configuration", zap.String("resource", c.Kinds[0].Resource), zap.Error(err))
	}
}
