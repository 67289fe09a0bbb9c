package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/admission"
	"monopod/agent/amount"
	"monopod/agent/cutoff"
	"monopod/agent/plan"
	"monopod/agent/spec"
	"monopod/agent/status"
)

// allocate takes over next as the pod to run, but with the resources that its
// containers had where the node has no more. The status says so, and every step
// tries again.
func (w *worker) allocate(next *corev1.Pod) {
	w.asked, w.deferred = next, nil
	if otherResources(&next.Spec, &w.pod.Spec) {
		if w.deferred = w.a.hasNoRoom(w.pod, next); w.deferred != nil {
			next = w.withPresent(next)
		}
		w.resizeAt = time.Time{}
		w.refresh = w.refresh || w.deferred == nil // volumes may show them
	}
	w.pod = next
	w.given.Store(next)
}

// withPresent is next with the resources that the pod's containers are given now.
func (w *worker) withPresent(next *corev1.Pod) *corev1.Pod {
	kept := next.DeepCopy()
	keepResources(kept, func(name string) *corev1.ResourceRequirements {
		if c := spec.Find(w.pod, name); c != nil {
			return &c.Resources
		}
		return nil
	})
	return kept
}

// allocatedBefore is the pod as an agent before this one ran it, when it was
// waiting for room.
func allocatedBefore(pod *corev1.Pod) *corev1.Pod {
	if status.Condition(pod.Status.Conditions, corev1.PodResizePending) == nil {
		return pod
	}
	kept := pod.DeepCopy()
	keepResources(kept, func(name string) *corev1.ResourceRequirements { return storedResources(pod, name, "") })
	return kept
}

// keepResources gives each container what of says it had.
func keepResources(pod *corev1.Pod, of func(name string) *corev1.ResourceRequirements) {
	for _, c := range mains(&pod.Spec) {
		if had := of(c.Name); had != nil {
			c.Resources = *had.DeepCopy()
		}
	}
}

// storedResources is what the status says that a container has, or the instance
// of it with the id.
func storedResources(pod *corev1.Pod, name, id string) *corev1.ResourceRequirements {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name && (id == "" || list[i].ContainerID == "containerd://"+id) {
				return list[i].Resources
			}
		}
	}
	return nil
}

// mains are the containers that can be resized, and the plain init containers.
func mains(s *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// otherResources says whether a container of next has other resources than in
// old.
func otherResources(next, old *corev1.PodSpec) bool {
	had := mains(old)
	return slices.ContainsFunc(mains(next), func(c *corev1.Container) bool {
		i := slices.IndexFunc(had, func(o *corev1.Container) bool { return o.Name == c.Name })
		return i >= 0 && len(changedResources(&c.Resources, &had[i].Resources)) > 0
	})
}

// changedResources are those of cpu and memory that differ.
func changedResources(a, b *corev1.ResourceRequirements) []corev1.ResourceName {
	var out []corev1.ResourceName
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !amount.Same(a.Requests, b.Requests, name) || !amount.Same(a.Limits, b.Limits, name) {
			out = append(out, name)
		}
	}
	return out
}

// hasNoRoom says why the node cannot give pod, which has what had says, what it asks
// for: never, or not now.
func (a *Agent) hasNoRoom(had, pod *corev1.Pod) *status.Resize {
	node := a.node.Current()
	if why := a.placement.infeasible(had, pod); why != "" {
		return &status.Resize{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible, Message: why}
	}
	if f := admission.Resources(pod, nil, node); f != nil {
		return pending(corev1.PodReasonInfeasible, f)
	}
	others := slices.DeleteFunc(a.active(), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	if f := admission.Resources(pod, others, node); f != nil {
		return pending(corev1.PodReasonDeferred, f)
	}
	return nil
}

func pending(reason string, f *status.Failure) *status.Resize {
	return &status.Resize{Type: corev1.PodResizePending, Reason: reason, Message: strings.TrimPrefix(f.Message, "Pod was rejected: ")}
}

// resize brings the containers that run to what the pod now gives them, and
// answers those that have to start again for it.
func (w *worker) resize(ctx context.Context) (restart []plan.Kill) {
	var changed []*corev1.Container
	for _, c := range mains(&w.pod.Spec) {
		now := w.seen.Latest(c.Name)
		if now == nil || now.State != status.Running || now.Resources == nil {
			continue
		}
		switch names := changedResources(&c.Resources, now.Resources); {
		case len(names) == 0:
		case slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
			return p.RestartPolicy == corev1.RestartContainer && slices.Contains(names, p.ResourceName)
		}):
			restart = append(restart, plan.Kill{Container: now, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		default:
			changed = append(changed, c)
		}
	}
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
	w.cage(w.widest()) // no container may have more than its pod, at any moment
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
	if w.a.cgroups == nil {
		return
	}
	if err := w.a.cgroups.Create(pod); err != nil {
		w.a.node.Lacks(err)
	}
}

// widest is the pod with the larger of what its containers have and are to have.
func (w *worker) widest() *corev1.Pod {
	wide := w.pod.DeepCopy()
	for _, c := range mains(&wide.Spec) {
		if now := w.seen.Latest(c.Name); now != nil && now.Resources != nil {
			c.Resources.Limits = amount.Larger(c.Resources.Limits, now.Resources.Limits)
			c.Resources.Requests = amount.Larger(c.Resources.Requests, now.Resources.Requests)
		}
	}
	return wide
}

// believe takes over what containers have that another agent started: what the
// stored status says, else what the spec gives them.
func (w *worker) believe(c *status.Container) {
	if c.Resources != nil {
		return
	}
	if c.Resources = storedResources(w.pod, c.Name, c.ID); c.Resources == nil {
		if s := w.containerSpec(c.Name); s != nil {
			c.Resources = s.Resources.DeepCopy()
		}
	}
}
