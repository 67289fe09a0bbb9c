package containerd

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"go.uber.org/zap"

	"monopod/agent/runtime/cri"
)

// deleteOldLeases deletes the leases of calls that an earlier containerd did not finish: they would keep snapshots and
// content for a day. It waits first, so that pods start without delay.
func (c *Child) deleteOldLeases(ctx context.Context) {
	began := c.config.Clock.Now()
	select {
	case <-ctx.Done():
		return
	case <-c.config.Clock.After(stableAfter):
	}
	if err := c.deleteLeases(ctx, began); err != nil && ctx.Err() == nil {
		c.config.Log.Warn("failed to delete the leases of an earlier containerd, they expire after a day", zap.Error(err))
	}
}

// deleteLeases deletes the leases that were created before a time.
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
