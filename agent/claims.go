package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/mount"
	"monopod/agent/provision"
	"monopod/agent/volume"
	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/client/record"
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
	var feed sync.WaitGroup
	feed.Go(func() { provision.NewFeed(a.source.Follower, p, a.wakeForClaim).Run(ctx) })
	if err := p.Run(ctx); err != nil {
		a.log.Error("no volumes are made or removed on this node", zap.Error(err))
	}
	feed.Wait()
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
	name := claim.Of(w.pod, v)
	c, err := client.Get[*corev1.PersistentVolumeClaim](ctx, w.a.Client, w.pod.Namespace, name)
	if err == nil {
		err = w.mayUse(v, c)
	}
	if err != nil {
		return nil, fmt.Errorf("error processing PVC %s/%s: %w", w.pod.Namespace, name, err)
	}
	pv, err := client.Get[*corev1.PersistentVolume](ctx, w.a.Client, "", c.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("persistentvolume %q not found", c.Spec.VolumeName)
	case err != nil:
		return nil, err
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID:
		return nil, fmt.Errorf("persistentvolume %q is not bound to the claim %s/%s", pv.Name, c.Namespace, c.Name)
	case !claim.Reaches(pv, w.a.node.Current()):
		return nil, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q: no matching NodeSelectorTerms", pv.Name)
	}
	return pv, w.takeAlone(ctx, c)
}

// mayUse says why the pod cannot have what is behind a claim. One that is being
// deleted is for those that have it already.
func (w *worker) mayUse(v *corev1.Volume, c *corev1.PersistentVolumeClaim) error {
	if v.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(w.pod, c); err != nil {
			return err
		}
	}
	switch {
	case c.DeletionTimestamp != nil && !w.hasRun():
		return fmt.Errorf("can't start pod because PVC %s/%s is being deleted", c.Namespace, c.Name)
	case !claim.Bound(c) || c.Status.Phase != corev1.ClaimBound:
		return errors.New("PVC is not bound")
	}
	return nil
}

// ranBefore: a container of the pod has run, as the API knows.
func ranBefore(pod *corev1.Pod) bool {
	ran := func(s corev1.ContainerStatus) bool { return s.ContainerID != "" }
	return slices.ContainsFunc(pod.Status.InitContainerStatuses, ran) || slices.ContainsFunc(pod.Status.ContainerStatuses, ran)
}

// blockDevices are those that the container gets of the pod's claims.
func (w *worker) blockDevices(c *corev1.Container) []*cri.Device {
	return volume.Devices(w.pod, c, w.volumes)
}
