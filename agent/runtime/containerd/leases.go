package containerd

import (
	"context"
	"errors"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
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
	var errs []error
	for _, l := range list {
		if l.CreatedAt.Before(before) {
			// Synchronous, because otherwise containerd collects what the lease kept only after a hundred other changes.
			err := manager.Delete(cri.InNamespace(ctx), leases.Lease{ID: l.ID}, leases.SynchronousDelete)
			if !errdefs.IsNotFound(err) { // containerd may delete one meanwhile
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
