package containerd

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"go.uber.org/zap"

	"monopod/agent/runtime/cri"
)

// endLeases deletes, once containerd is idle, the leases of calls that died with its
// predecessor, which would keep snapshots and content for a day.
func (c *Child) endLeases(ctx context.Context) {
	began := c.config.Clock.Now()
	select {
	case <-ctx.Done():
		return
	case <-c.config.Clock.After(settled):
	}
	if err := c.deleteLeases(ctx, began); err != nil && ctx.Err() == nil {
		c.config.Log.Warn("failed to delete the leases of an earlier containerd, they expire after a day", zap.Error(err))
	}
}

// deleteLeases deletes those made before.
func (c *Child) deleteLeases(ctx context.Context, before time.Time) error {
	conn, err := cri.Dial(c.layout.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := containerd.NewWithConn(conn)
	if err != nil {
		return err
	}
	manager := client.LeasesService()
	list, err := manager.List(cri.InNamespace(ctx))
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.CreatedAt.Before(before) {
			if err := manager.Delete(cri.InNamespace(ctx), leases.Lease{ID: l.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}
