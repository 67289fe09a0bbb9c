package volume

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/storage/csi"
)

// CSI mounts a volume that lives as long as its pod.
func (s *setup) CSI(ctx context.Context, v *corev1.Volume) (string, error) {
	readOnly := v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	return s.driver(ctx, csi.Volume{Pod: s.facts.Pod, Dir: s.dir(v), Inline: v.CSI, Name: v.Name, ReadOnly: readOnly})
}

// ClaimedCSI mounts a PersistentVolume, or returns its device. Its folder has the name of the PersistentVolume, as
// upstream: backup programs look for it.
func (s *setup) ClaimedCSI(ctx context.Context, pv *corev1.PersistentVolume, v *corev1.Volume) (string, error) {
	readOnly := pv.Spec.CSI.ReadOnly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly
	return s.driver(ctx, csi.Volume{Pod: s.facts.Pod, Dir: folder(s.Set.Dir, s.plugin, pv.Name), Persistent: pv,
		Name: v.Name, ReadOnly: readOnly})
}

func (s *setup) driver(ctx context.Context, v csi.Volume) (string, error) {
	if s.Drivers == nil {
		return "", errors.New("volumes of CSI drivers are not supported here")
	}
	return s.Drivers.SetUp(ctx, v)
}
