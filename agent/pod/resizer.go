package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/plan"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
)

// resizer changes the resources of running containers.
type resizer struct {
	node     *Node
	id       *identity.Pod
	observer *observe.Observer
	pace     *pace.Pace
	sandbox  *sandbox.Sandbox
	report   func()

	progress *status.Resize // while the containers' resources differ from the allocated ones
	after    time.Time      // time of the next attempt after the runtime refused
}

// retry makes the next attempt immediate, because the request has changed.
func (r *resizer) retry() { r.after = time.Time{} }

// resize sets the resources of running containers to the allocated ones, and returns those that must restart for
// it.
func (r *resizer) resize(ctx context.Context, pod *corev1.Pod) (restart []plan.Kill) {
	restart, changed := resize.Plan(pod, r.observer.Seen())
	if len(changed) == 0 {
		r.progress = nil
	} else if rest := r.after.Sub(r.node.Clock.Now()); rest > 0 {
		r.pace.RetryIn(rest)
	} else {
		r.actuate(ctx, pod, changed)
	}
	return restart
}

// actuate updates the runtime. What it refuses is retried.
func (r *resizer) actuate(ctx context.Context, pod *corev1.Pod, list []*corev1.Container) {
	if r.progress == nil {
		r.progress = &status.Resize{Type: corev1.PodResizeInProgress}
		r.report()
	}
	r.sandbox.Limit(resize.Widest(pod, r.observer.Seen())) // at no time may a container have more than its pod
	var failed error
	for _, c := range list {
		id := r.observer.Seen().Latest(c.Name).ID
		err := r.node.Runtime.UpdateContainerResources(ctx, id, spec.Resources(pod, c, r.node.Memory))
		if cutoff.Lost(err) {
			r.pace.RetryIn(time.Second)
			return
		}
		if err != nil {
			failed = err
			r.id.Event(c.Name, corev1.EventTypeWarning, "ResizeError", "Error resizing container %s: %v", c.Name, err)
			continue
		}
		r.observer.Resized(id, &c.Resources)
	}
	if failed == nil {
		r.sandbox.Limit(pod)
		r.progress = nil
		return
	}
	r.progress = &status.Resize{Type: corev1.PodResizeInProgress, Reason: corev1.PodReasonError, Message: failed.Error()}
	r.after = r.node.Clock.Now().Add(pace.Config)
	r.pace.RetryIn(pace.Config)
}
