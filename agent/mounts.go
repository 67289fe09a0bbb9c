package agent

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/env"
	"monopod/agent/volume"
)

// mounts are what a container is to see of the pod's volumes.
func (w *worker) mounts(ctx context.Context, c *corev1.Container, vars []env.Var) ([]*cri.Mount, error) {
	can, err := w.canMount(ctx, c)
	if err != nil {
		return nil, err
	}
	return w.volumeSet(ctx).Mounts(w.pod, c, w.volumes, vars, can)
}

// canMount asks the runtime what it can do, if the container wants more than the
// usual.
func (w *worker) canMount(ctx context.Context, c *corev1.Container) (volume.Features, error) {
	unusual := func(m corev1.VolumeMount) bool { return m.RecursiveReadOnly != nil || len(m.BindMountOptions) > 0 }
	if !slices.ContainsFunc(c.VolumeMounts, unusual) {
		return volume.Features{}, nil
	}
	s, err := w.a.Runtime.Status(ctx)
	if err != nil {
		return volume.Features{}, err
	}
	can := volume.Features{Options: s.GetFeatures().GetMountOptions()}
	for _, h := range s.GetRuntimeHandlers() {
		if h.Name == "" {
			can.RecursiveReadOnly = h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return can, nil
}
