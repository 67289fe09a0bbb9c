package csi

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Usage is what a driver says about a volume: amounts in bytes, and numbers of inodes.
type Usage struct {
	Bytes, Inodes Amounts
	Abnormal      *bool // nil: the driver says nothing about the volume's health
}

// Amounts are the amounts of one unit; all are 0 if the driver says nothing about it.
type Amounts struct{ Total, Free, Used int64 }

var errNoUsage = errors.New("the driver does not report the usage of volumes")

// Usage asks the driver of a published volume for its usage; ok is false if the volume is not one of a driver. It
// returns an error if the driver cannot tell it.
func (m *Manager) Usage(ctx context.Context, path string) (u Usage, ok bool, err error) {
	m.mu.Lock()
	var v *Volume
	for _, d := range m.volumes {
		for _, user := range d.users {
			if user.volume != nil && user.published && m.target(user.volume) == path {
				v = user.volume
			}
		}
	}
	m.mu.Unlock()
	if v == nil {
		return u, false, nil
	}
	d, err := m.driver(v.id().driver)
	if err != nil {
		return u, true, err
	}
	if !d.has(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS) {
		return u, true, errNoUsage
	}
	answer, err := d.node.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.id().handle,
		VolumePath: m.visible(d, path), StagingTargetPath: m.stagingPath(d, v.id())})
	if err != nil {
		return u, true, err
	}
	for _, one := range answer.GetUsage() {
		a := Amounts{Total: one.GetTotal(), Free: one.GetAvailable(), Used: one.GetUsed()}
		switch one.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.Bytes = a
		case csi.VolumeUsage_INODES:
			u.Inodes = a
		}
	}
	if c := answer.GetVolumeCondition(); c != nil && d.has(csi.NodeServiceCapability_RPC_VOLUME_CONDITION) {
		u.Abnormal = &c.Abnormal
	}
	return u, true, nil
}
