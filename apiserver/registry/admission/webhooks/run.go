package webhooks

import (
	"context"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
	"monopod/apiserver/registry/following"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// configurations are the kinds that configure webhooks.
var configurations = [...]schema.GroupVersionResource{client.MutatingWebhookConfigurations, client.ValidatingWebhookConfigurations}

// Run follows the configurations until ctx ends. Writes through the registry take effect at once; this is for the
// writes of other servers on the same state.
func (h *Hooks) Run(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	load := func(ctx context.Context) (int64, error) {
		rev := h.cfg.Store.Revision()
		return rev, h.Load(ctx)
	}
	for _, gvr := range configurations {
		group.Do(func() error {
			in := following.Following{Store: h.cfg.Store, Clock: h.cfg.Clock, Log: h.cfg.Log}
			return in.Run(ctx, store.Selector{Resource: gvr.Resource}, load, func(*store.Event) { h.reload(ctx) })
		})
	}
	return group.Wait()
}

// Written makes a write of a resource take effect, if it configures webhooks.
func (h *Hooks) Written(ctx context.Context, res *kind.Resource) {
	if res.GVR == configurations[0] || res.GVR == configurations[1] {
		h.reload(ctx)
	}
}

func (h *Hooks) reload(ctx context.Context) {
	if err := h.Load(context.WithoutCancel(ctx)); err != nil {
		h.cfg.Log.Warn("failed to read the configurations of admission webhooks", zap.Error(err))
	}
}
