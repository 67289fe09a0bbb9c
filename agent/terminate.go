package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// terminate ends the pod: containers stopped gracefully, the final status stored,
// the sandbox stopped, volumes away. Then bury decides what becomes of the rest. Every part can be done again.
func (w *worker) terminate(ctx context.Context) (done bool, err error) {
	if w.started.IsZero() {
		w.started = w.a.Clock.Now()
		w.announceKill()
	}
	if err := w.killAll(ctx, w.seen.Alive(), w.graceLeft()); err != nil {
		return false, err
	}
	w.probes.Keep(w.isRunning)
	w.a.placement.Release(w.uid)
	if !w.settled {
		w.report(true)
		w.settled = true
	}
	if err := w.clear(); err != nil {
		return false, err
	}
	w.state = terminated
	w.over.Store(true)
	w.dropAlone()
	return w.bury()
}

func (w *worker) announceKill() {
	for _, c := range w.seen.Alive() {
		w.a.event(w.pod, c.Name, corev1.EventTypeNormal, "Killing", "Stopping container %s", c.Name)
	}
}

// graceLeft is what is left for the containers, counted from when the kill began.
// A pod already gone from the API has what it had left, at least a second.
func (w *worker) graceLeft() time.Duration {
	grace := spec.OwnGrace(w.pod)
	if w.pod.DeletionTimestamp != nil {
		grace = spec.Grace(w.pod)
	}
	if w.hurry != nil {
		grace = min(grace, *w.hurry)
	}
	left := max(0, grace-w.a.Clock.Since(w.started))
	if w.gone {
		if w.pod.DeletionTimestamp == nil {
			left = 0
		}
		return max(left, minGone)
	}
	return left
}

// clear takes away what a pod without living containers no longer needs. The
// sandbox may go only when the final status is stored: after a crash the status
// could not be made again.
//
// It is not interrupted by news: none could make it faster, and half a stop of a
// sandbox costs more than a whole one.
func (w *worker) clear() error {
	var g guard.Group
	for i := range w.seen.Sandboxes {
		s := &w.seen.Sandboxes[i]
		g.Do(func() error {
			if err := w.a.Runtime.StopPodSandbox(w.life, s.ID); err != nil {
				return fmt.Errorf("stop sandbox: %w", err)
			}
			s.Ready = false
			return nil
		})
	}
	g.Do(w.volumeSet(w.life).Unmount)
	if !w.static { // which ends also where no API is
		g.Do(func() error { return w.a.status.Flush(w.life, w.uid) })
	}
	return g.Wait()
}

// Processes leave a cgroup a moment after the runtime says they are dead.
const (
	cgroupTries = 10
	cgroupPause = 5 * time.Millisecond
)

func (w *worker) removeCgroup() error {
	if w.a.cgroups == nil || w.uncaged {
		return nil
	}
	var err error
	for range cgroupTries {
		if err = w.a.metrics.cage("destroy", func() error { return w.a.cgroups.Remove(w.pod) }); err == nil {
			w.uncaged = true
			return nil
		}
		if !w.a.sleep(w.life, cgroupPause) {
			return w.life.Err()
		}
	}
	return fmt.Errorf("remove cgroup: %w", err)
}

// bury removes the last traces of a pod whose object is to go or gone, and ends
// the worker once it is. A pod that merely finished keeps its dead containers
// and logs until then.
func (w *worker) bury() (done bool, err error) {
	if !w.gone && w.pod.DeletionTimestamp == nil {
		return false, w.removeCgroup()
	}
	if err := w.removeTraces(); err != nil {
		return false, err
	}
	if w.gone || w.static {
		return true, nil
	}
	if err := w.a.status.Flush(w.life, w.uid); err != nil {
		return false, err
	}
	return false, w.deleteObject()
}

func (w *worker) removeTraces() error {
	var g guard.Group
	for _, s := range w.seen.Sandboxes {
		g.Do(func() error { return w.removeSandbox(s) })
	}
	g.Do(w.volumeSet(w.life).Teardown)
	g.Do(w.removeCgroup)
	if err := g.Wait(); err != nil {
		return err
	}
	w.unlinkLogs()
	w.seen = status.Observed{}
	w.a.tokens.Forget(w.uid)
	return os.RemoveAll(w.a.logs.Pod(w.pod))
}

// removeSandbox removes a sandbox and the containers in it.
func (w *worker) removeSandbox(s status.Sandbox) error {
	if err := w.a.Runtime.RemovePodSandbox(w.life, s.ID); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// deleteObject is phase two of the deletion: the object goes, if it is still the
// same one; finalizers may hold it. The watch says when it is gone.
func (w *worker) deleteObject() error {
	_, err := w.a.Client.Delete(w.life, client.RefOf(w.pod), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: new(w.uid)},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete pod object: %w", err)
}
