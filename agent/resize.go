package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/plan"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
)

// allocate takes over next as the pod to run, but with the resources that its
// containers had where the node has no more. The status says so, and every step
// tries again.
func (w *worker) allocate(next *corev1.Pod) {
	w.asked, w.deferred = next, nil
	if resize.Asked(&next.Spec, &w.pod.Spec) {
		if w.deferred = w.a.hasNoRoom(w.pod, next); w.deferred != nil {
			next = resize.Keep(next, w.pod)
		}
		w.resizeAt = time.Time{}
		w.refresh = w.refresh || w.deferred == nil // volumes may show them
	}
	w.pod = next
	w.given.Store(next)
}

// hasNoRoom says why the node cannot give pod, which has what had says, what it asks
// for: never, or not now.
func (a *Agent) hasNoRoom(had, pod *corev1.Pod) *status.Resize {
	if why := a.placement.Infeasible(had, pod); why != "" {
		return resize.Infeasible(why)
	}
	return resize.Room(pod, a.activeBeside(pod), a.node.Current())
}

// resize brings the containers that run to what the pod now gives them, and
// answers those that have to start again for it.
func (w *worker) resize(ctx context.Context) (restart []plan.Kill) {
	restart, changed := resize.Plan(w.pod, &w.seen)
	if len(changed) == 0 {
		w.progress = nil
	} else if rest := w.resizeAt.Sub(w.a.Clock.Now()); rest > 0 {
		w.retryIn(rest)
	} else {
		w.actuate(ctx, changed)
	}
	return restart
}

// actuate tells the runtime. What it refuses is tried again.
func (w *worker) actuate(ctx context.Context, list []*corev1.Container) {
	if w.progress == nil {
		w.progress = &status.Resize{Type: corev1.PodResizeInProgress}
		w.report(false)
	}
	w.cage(resize.Widest(w.pod, &w.seen)) // no container may have more than its pod, at any moment
	var failed error
	memory := w.a.capacity[corev1.ResourceMemory]
	for _, c := range list {
		now := w.seen.Latest(c.Name)
		err := w.a.Runtime.UpdateContainerResources(ctx, now.ID, spec.Resources(w.pod, c, memory.Value()))
		if cutoff.Lost(err) {
			w.retryIn(time.Second)
			return
		}
		if err != nil {
			failed = err
			w.a.event(w.pod, c.Name, corev1.EventTypeWarning, "ResizeError", "Error resizing container %s: %v", c.Name, err)
			continue
		}
		now.Resources = c.Resources.DeepCopy()
	}
	if failed == nil {
		w.cage(w.pod)
		w.progress = nil
		return
	}
	w.progress = &status.Resize{Type: corev1.PodResizeInProgress, Reason: corev1.PodReasonError, Message: failed.Error()}
	w.resizeAt = w.a.Clock.Now().Add(configRetry)
	w.retryIn(configRetry)
}

// cage sets the limits of the pod's cgroup anew.
func (w *worker) cage(pod *corev1.Pod) {
	if w.a.cgroups != nil {
		w.a.node.Lacks(string(w.uid), w.a.metrics.cage("update", func() error { return w.a.cgroups.Create(pod) }))
	}
}

// believe takes over what containers have that another agent started: what the
// stored status says, else what the spec gives them.
func (w *worker) believe(c *status.Container) {
	if c.Resources != nil {
		return
	}
	if c.Resources = resize.Stored(w.pod, c.Name, c.ID); c.Resources == nil {
		if s := w.containerSpec(c.Name); s != nil {
			c.Resources = s.Resources.DeepCopy()
		}
	}
}
