package agent

import (
	"context"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/storage/mount"
	"monopod/agent/storage/provision"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/client/record"
	"monopod/apiserver/process/guard"
)

// volumesDir is where volumes of the node's own provisioner lie.
func (a *Agent) volumesDir() string { return filepath.Join(a.cfg.DataDir, "volumes") }

// provideVolumes makes and removes the volumes of this node, and wakes pods whose
// claims are bound, until ctx ends.
func (a *Agent) provideVolumes(ctx context.Context) {
	p := provision.New(provision.Deps{
		Client: a.Client, Clock: a.Clock, Log: a.log.Named("volumes"),
		Event: func(obj client.Object, eventType, reason, format string, args ...any) {
			a.Recorder.Reference(record.ReferenceTo(obj), eventType, reason, format, args...)
		},
		Busy:   func(namespace, name string) bool { return a.usesClaim(namespace, name, "") },
		Remove: func(path string) error { return mount.RemoveAll(path, a.Mounter) },
	}, provision.Config{Dir: a.volumesDir(), Node: a.cfg.NodeName})
	guard.Together(ctx, provision.NewFeed(a.source.Follower, p, a.wakeForClaim).Run, func(ctx context.Context) {
		if err := p.Run(ctx); err != nil {
			a.log.Error("no volumes are made or removed on this node", zap.Error(err))
		}
	})
}

// wakeForClaim wakes pods that wait for a claim.
func (a *Agent) wakeForClaim(namespace, name string) {
	for _, w := range a.all() {
		if pod := w.current.Load(); !w.mounted.Load() && pod.Namespace == namespace && slices.Contains(claim.AllOf(pod), name) {
			w.update(func(in *inbox) { in.refresh = true })
		}
	}
}

// usesClaim: a pod other than except uses the claim, and has not ended.
func (a *Agent) usesClaim(namespace, name string, except types.UID) bool {
	for uid, w := range a.all() {
		if pod := w.current.Load(); uid != except && !w.over.Load() && pod.Namespace == namespace && slices.Contains(claim.AllOf(pod), name) {
			return true
		}
	}
	return false
}

// claimed finds the volume that a pod's volume stands for, once its claim is bound.
func (w *worker) claimed(ctx context.Context, v *corev1.Volume) (*corev1.PersistentVolume, error) {
	return w.a.claims.Volume(ctx, w.pod, v, len(w.seen.Containers) > 0)
}

// madeFor: the runtime has containers of the pod.
func (a *Agent) madeFor(uid types.UID) bool {
	w := a.all()[uid]
	if w == nil {
		return false
	}
	seen := w.snapshot.Load()
	return seen != nil && len(seen.Containers) > 0
}

// dropAlone lets others have the pod's claims, now that its volumes are gone.
func (w *worker) dropAlone() {
	for _, c := range w.a.claims.Drop(w.uid) {
		w.a.wakeForClaim(c.Namespace, c.Name)
	}
}

// blockDevices are those that the container gets of the pod's claims.
func (w *worker) blockDevices(c *corev1.Container) []*cri.Device {
	return volume.Devices(w.pod, c, w.volumes)
}
