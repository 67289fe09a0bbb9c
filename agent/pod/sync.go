package pod

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/containers"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/plan"
	"monopod/agent/podapi/status"
	"monopod/apiserver/kit/guard"
)

// sync carries out plans until the current plan is empty, or a container must wait.
func (w *worker) sync(ctx context.Context) error {
	for {
		again, err := w.round(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.report(false)
		if err != nil || !again {
			return err
		}
	}
}

// round carries out one plan; again means that the next plan may contain more.
func (w *worker) round(ctx context.Context) (again bool, err error) {
	pod := w.desired.pod
	w.pace.Round()
	w.probes.Keep()
	if err := w.starter.Settle(ctx, pod); err != nil {
		return false, err
	}
	p := plan.For(plan.Input{
		Pod: pod, Observed: w.observer.Observed(), Started: w.probes.Started, Failed: w.probes.Failed,
	})
	if p.RestartAll != nil {
		// All containers are stopped at once without hooks. After the backoff of the container that triggered the
		// restart, all are removed, so that they are created again; the sandbox and the volumes stay. Each part can be
		// repeated.
		if len(p.Kill) > 0 {
			w.report(false)
			return true, w.stopper.KillNow(ctx, pod, p.Kill, containers.RestartingAll, containers.RestartingAllMessage)
		}
		if !w.starter.MayRestartAll(pod, p.RestartAll) {
			return false, nil
		}
		w.report(false)
		return true, w.starter.RemoveAll(ctx, pod, p.RestartAll.ID)
	}
	if p.NewSandbox { // the runtime must support what the pod requests, and its devices must be prepared
		failure, err := w.sandbox.CheckSupport(ctx, pod)
		able := failure == nil && err == nil
		if able {
			able, failure, err = w.devices.prepare(ctx, pod)
		}
		if failure != nil { // it can never run
			w.desired.fail(failure, w.desired.grace)
			w.id.Warn(failure.Reason, "%s", failure.Message)
		}
		if !able {
			return false, err
		}
	}
	if err := w.prepare(ctx, p); err != nil {
		if failed := w.volumes.Failed(); failed != nil { // shown by containers that were never started
			why := status.Waiting{Reason: pace.Creating(pod), Message: failed.Error()}
			w.pace.WaitAll(pod, why, func(container string) bool { return w.observer.Observed().Latest(container) != nil })
		}
		return false, err
	}
	if w.volumes.Mounted() && w.volumes.Failed() != nil { // containers run with old content
		w.pace.RetryIn(pace.Config)
	}
	if len(p.Kill) > 0 {
		return true, w.stopper.StopToRestart(ctx, pod, p.Kill)
	}
	if restart := w.resizer.resize(ctx, pod); len(restart) > 0 {
		return true, w.stopper.StopToRestart(ctx, pod, restart)
	}
	if len(p.Start) == 0 {
		return false, nil
	}
	return w.starter.StartAll(ctx, pod, p.Start)
}

// prepare creates the sandbox, sets up the volumes and reads the present images, all concurrently.
func (w *worker) prepare(ctx context.Context, p plan.Plan) error {
	pod, facts, ran := w.desired.pod, w.observer.Facts(w.desired.pod), len(w.observer.Observed().Containers) > 0
	if !p.NewSandbox {
		return w.volumes.Prepare(ctx, facts, len(p.Start) > 0, ran)
	}
	seen := w.observer.Observed()
	if old := seen.Sandbox(); old != nil { // it is dead: stop its containers and release its address first
		if slices.ContainsFunc(seen.Containers, func(c status.Container) bool { return c.SandboxID == old.ID }) {
			w.id.Event("", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		if err := w.stopper.StopRunning(ctx, pod, "Pod sandbox changed"); err != nil {
			return err
		}
		if err := w.sandbox.Stop(ctx); err != nil {
			return err
		}
	}
	w.report(false) // ContainerCreating is stored while the sandbox starts
	var unmounted error
	var found map[string]*cri.Image
	facts = w.observer.Facts(pod)
	var group guard.Group
	group.Do(func() error { unmounted = w.volumes.Prepare(ctx, facts, true, ran); return nil })
	group.Do(func() error { found = w.images.FindPresent(ctx, pod, p.Start); return nil })
	// guard.Call returns a panic as an error, so that the group is always awaited.
	err := guard.Call(func() error { return w.sandbox.Create(ctx, pod, p.Attempt) })
	if panicked := group.Wait(); panicked != nil {
		return panicked
	}
	w.images.SetPresent(found)
	return errors.Join(err, unmounted)
}
