package pod

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// state is a stage of a pod's life; stages never go back.
type state int

const (
	syncing     state = iota // containers should run
	terminating              // containers are being stopped
	terminated               // all containers are dead and cleaned up; the object may still exist
)

// ending is the progress of a pod's termination.
type ending struct {
	state    state
	began    time.Time // start of the termination
	reported bool      // the final status is stored
}

// terminate stops the containers gracefully, stores the final status, stops the sandbox and unmounts the volumes. Then
// it calls removePod. Every part can be repeated.
func (w *worker) terminate(ctx context.Context) (over bool, err error) {
	if w.observer.Observed().Sandbox() != nil { // without a sandbox there is nothing to stop
		defer w.node.Hooks.AcquireStop(ctx)()
	}
	if w.end.began.IsZero() {
		w.end.began = w.node.Clock.Now()
		for _, c := range w.observer.Observed().Alive() {
			w.id.Event(c.Name, corev1.EventTypeNormal, "Killing", "Stopping container %s", c.Name)
		}
	}
	if err := w.stopper.StopWithin(ctx, w.desired.pod, w.desired.graceLeft(w.node.Clock.Since(w.end.began))); err != nil {
		return false, err
	}
	w.probes.Keep()
	if err := w.devices.release(ctx); err != nil { // before the final status, with which others may get the devices
		return false, err
	}
	w.node.Placement.Release(w.id.UID)
	if !w.end.reported {
		w.report(true)
		w.end.reported = true
	}

	// The pod may only be cleaned up further when the final status is stored: after a crash the status could not be
	// computed again. News do not interrupt this: no news could make it faster, and an interrupted stop of a sandbox
	// costs more than a complete one.
	var g guard.Group
	stopped := w.sandbox.StopAll(&g)
	g.Do(func() error { return w.volumes.Unmount(ctx) })
	if !w.id.Static { // a static pod also ends without the API
		g.Do(func() error { return w.node.Statuses.Flush(w.id.Life, w.id.UID) })
	}
	err = g.Wait()
	if stopped(); err != nil {
		return false, err
	}
	w.end.state = terminated
	w.pod.over.Store(true)
	w.node.Hooks.Unmounted(w.id.UID)
	return w.removePod(ctx)
}

// probed stores the status when the result of a probe changes while the worker waits for containers to stop: a Service
// must not lead to a pod that ends and is no longer ready.
func (w *worker) probed() {
	if w.end.state == terminating {
		w.report(false)
	}
}

// removePod removes everything of a pod whose object is deleted or gone: the sandbox with its containers, volumes,
// cgroup and logs. A pod that has only finished keeps its dead containers and logs until then. over means that the
// object is gone too, and the worker ends.
//
// Then removePod deletes the object with grace period 0, if it still has the same UID. Finalizers may keep the object;
// the watch reports when it is gone.
func (w *worker) removePod(ctx context.Context) (over bool, err error) {
	pod, gone := w.desired.pod, w.desired.gone
	if !gone && pod.DeletionTimestamp == nil {
		return false, w.sandbox.RemoveCgroup(pod)
	}
	var g guard.Group
	w.sandbox.RemoveAll(&g)
	g.Do(func() error { return w.volumes.Teardown(ctx) })
	g.Do(func() error { return w.sandbox.RemoveCgroup(pod) })
	if err := g.Wait(); err != nil {
		return false, err
	}
	logs, seen := w.node.Containers.Logs, w.observer.Observed()
	for i := range seen.Containers {
		logs.Unlink(pod, &seen.Containers[i])
	}
	w.observer.ForgetAll()
	w.volumes.Forget()
	if err := os.RemoveAll(logs.Pod(pod)); err != nil {
		return false, err
	}
	if gone || w.id.Static {
		return true, nil
	}
	if err := w.node.Statuses.Flush(w.id.Life, w.id.UID); err != nil {
		return false, err
	}
	_, err = w.node.Client.Delete(w.id.Life, client.RefOf(pod), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(w.id.UID)},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return false, fmt.Errorf("delete pod object: %w", err)
}
