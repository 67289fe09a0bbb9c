package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/env"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/abilities"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client/claim"
)

// mounts are what a container is to see of the pod's volumes.
func (w *worker) mounts(ctx context.Context, c *corev1.Container, vars []env.Var) ([]*cri.Mount, error) {
	can, err := w.canMount(ctx, c)
	if err != nil {
		return nil, err
	}
	set := w.volumeSet(ctx)
	set.Images = w.shown()
	return set.Mounts(w.pod, c, w.volumes, vars, can)
}

// placed is where a volume of a pod lies.
type placed struct {
	Dir, Plugin string
	Claim       string // behind it; empty: none
}

// places are the volumes of a pod by name.
type places map[string]placed

// place shows others where the pod's volumes lie.
func (w *worker) place(paths, plugins map[string]string) {
	out := places{}
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		p := placed{Dir: paths[v.Name], Plugin: plugins[v.Name]}
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			p.Claim = claim.Of(w.pod, v)
		}
		out[v.Name] = p
	}
	w.placed.Store(&out)
}

// envFile reads a file of one of the pod's volumes, for the environment of a
// container.
func (w *worker) envFile(name, path string) ([]byte, error) {
	root, ok := w.volumes[name]
	if !ok {
		return nil, fmt.Errorf("the pod has no volume %q", name)
	}
	return volume.Read(root, path, env.MaxFile)
}

// claimPatience is how long a claim may take to be bound without an event: pods are
// scheduled as soon as it is decided with which volume.
const claimPatience = 10 * time.Second

// tellUnmounted makes an event of each volume that cannot be set up.
func (w *worker) tellUnmounted() {
	now := w.a.Clock.Now()
	if !errors.Is(w.unmounted, claims.ErrUnbound) {
		w.unbound = time.Time{}
	} else if w.unbound.IsZero() {
		w.unbound = now
	}
	for _, err := range each(w.unmounted) {
		if errors.Is(err, claims.ErrUnbound) && now.Sub(w.unbound) < claimPatience {
			continue
		}
		w.a.event(w.pod, "", corev1.EventTypeWarning, "FailedMount", "%v", err)
	}
}

// each is what errors.Join joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// waitForVolumes says, of containers that were never started, which volumes they
// wait for.
func (w *worker) waitForVolumes() {
	if w.unmounted == nil {
		return
	}
	why := status.Waiting{Reason: "ContainerCreating", Message: w.unmounted.Error()}
	if len(w.pod.Spec.InitContainers) > 0 {
		why.Reason = "PodInitializing"
	}
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			if w.seen.Latest(list[i].Name) == nil {
				w.waiting[list[i].Name] = why
			}
		}
	}
}

// canMount asks the runtime what it can do, if the container wants more than the
// usual.
func (w *worker) canMount(ctx context.Context, c *corev1.Container) (volume.Features, error) {
	can, err := w.canBind(ctx, c)
	if err == nil && len(w.imageVolumes(c)) > 0 {
		var v *cri.VersionResponse
		v, err = w.a.Runtime.Version(ctx)
		can.ImageSubPaths = abilities.Of(v).ImageSubPaths
	}
	return can, err
}

func (w *worker) canBind(ctx context.Context, c *corev1.Container) (volume.Features, error) {
	unusual := func(m corev1.VolumeMount) bool { return m.RecursiveReadOnly != nil || len(m.BindMountOptions) > 0 }
	if !slices.ContainsFunc(c.VolumeMounts, unusual) {
		return volume.Features{}, nil
	}
	handler, err := w.a.handler(ctx, w.pod)
	if err != nil {
		return volume.Features{}, err
	}
	s, err := w.a.Runtime.Status(ctx)
	if err != nil {
		return volume.Features{}, err
	}
	can := volume.Features{Options: s.GetFeatures().GetMountOptions()}
	for _, h := range s.GetRuntimeHandlers() {
		if h.Name == handler {
			can.RecursiveReadOnly = h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return can, nil
}
