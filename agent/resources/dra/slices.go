package dra

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"
)

// slicesRemoved records that the slices of a driver were removed, unless the driver has registered and disconnected
// again meanwhile.
func (m *Manager) slicesRemoved(driver string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.removeSlicesAt, func(name string, at time.Time) bool {
		return name == driver && !at.After(m.cfg.Clock.Now())
	})
}

// removeSlices removes the node's slices of a driver, or of all drivers, that are not registered, because their devices
// cannot be prepared.
func (m *Manager) removeSlices(ctx context.Context, driver string) error {
	all, err := m.cfg.API.Slices(ctx, driver)
	errs := []error{err}
	for _, slice := range all {
		if _, absent := m.driver(slice.Spec.Driver); absent == nil {
			continue
		}
		err := m.cfg.API.RemoveSlice(ctx, slice)
		if err == nil {
			m.cfg.Log.Info("removed a ResourceSlice of a DRA driver that is gone", zap.String("driver", slice.Spec.Driver),
				zap.String("slice", slice.Name))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
