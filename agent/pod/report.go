package pod

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"monopod/agent/pod/identity"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// reporter stores the pod's status when it has changed.
type reporter struct {
	node   *Node
	id     *identity.Pod
	stored *corev1.PodStatus // the last reported status; nil: none
	// received is the time at which the node received a new pod; zero if the pod has run, or is older than the agent.
	received time.Time
}

func newReporter(node *Node, id *identity.Pod, object *corev1.Pod) *reporter {
	r := &reporter{node: node, id: id}
	if object.Status.StartTime == nil {
		r.received = node.Clock.Now()
	}
	return r
}

// report computes the status from in, calls complete, and stores the status if it has changed.
func (r *reporter) report(pod *corev1.Pod, in status.Input, complete func(*corev1.PodStatus)) {
	base := *pod
	if r.stored != nil {
		base.Status = *r.stored
		base.Status.Conditions = status.WithForeign(r.stored.Conditions, pod.Status.Conditions)
	}
	in.Pod = &base
	next := status.Of(in)
	complete(&next)
	if next.Phase == corev1.PodRunning && !r.received.IsZero() {
		r.node.Hooks.Ran(r.node.Clock.Since(r.received))
		r.received = time.Time{}
	}
	first := r.id.Static && r.stored == nil // its mirror pod may not exist yet
	switch {
	case first, !apiequality.Semantic.DeepEqual(&base.Status, &next):
		r.count(&base.Status, &next)
		r.stored = &next
		r.node.Statuses.Set(r.id.Life, pod, &next)
	case apiequality.Semantic.DeepEqual(&pod.Status, &next):
		r.stored = &pod.Status // share the memory
	default:
		r.node.Statuses.Restore(r.id.Life, pod)
	}
}

// count counts the containers that have terminated since was.
func (r *reporter) count(was, is *corev1.PodStatus) {
	for _, list := range []struct {
		kind    string
		was, is []corev1.ContainerStatus
	}{
		{spec.TypeInit, was.InitContainerStatuses, is.InitContainerStatuses},
		{spec.TypeContainer, was.ContainerStatuses, is.ContainerStatuses},
		{spec.TypeEphemeral, was.EphemeralContainerStatuses, is.EphemeralContainerStatuses},
	} {
		for i := range list.is {
			end, name := list.is[i].State.Terminated, list.is[i].Name
			if end != nil &&
				!slices.ContainsFunc(list.was,
					func(s corev1.ContainerStatus) bool { return s.Name == name && s.State.Terminated != nil }) {
				r.node.Hooks.Terminated(list.kind, end)
			}
		}
	}
}

// last returns the last reported status, or that of the pod.
func (r *reporter) last(pod *corev1.Pod) *corev1.PodStatus { return cmp.Or(r.stored, &pod.Status) }

// finished reports whether the last reported status is final.
func (r *reporter) finished() bool { return r.stored != nil && status.Finished(r.stored.Phase) }

// startTime returns the time at which the node accepted the pod; zero if unknown.
func (r *reporter) startTime(pod *corev1.Pod) time.Time {
	switch {
	case r.stored != nil && r.stored.StartTime != nil:
		return r.stored.StartTime.Time
	case pod.Status.StartTime != nil:
		return pod.Status.StartTime.Time
	}
	return time.Time{}
}

// awaitsRunning reports whether the pod is new and has not run yet.
func (r *reporter) awaitsRunning() bool { return !r.received.IsZero() }

// report stores the pod's status if it has changed. terminal means that no container runs or will run.
func (w *worker) report(terminal bool) {
	if w.desired.gone {
		return
	}
	w.observer.Publish()
	w.reporter.report(w.desired.pod, status.Input{
		Observed: w.observer.Observed(), Waiting: w.pace.Waiting(), Ready: w.probes.Ready, Started: w.probes.Started,
		HostIPs: w.node.HostIPs(), Terminal: terminal, Failure: w.desired.failure,
		Resize:            cmp.Or(w.resizer.progress, w.desired.deferred),
		PodLevelResources: w.resizer.level, Now: w.node.Clock.Now(),
	}, func(st *corev1.PodStatus) {
		w.devices.setHealth(st)
		w.devices.holdPhase(st, terminal)
	})
}
