package pod

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/plan"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/sandbox"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
)

// resizer changes the resources of running containers.
type resizer struct {
	node     *Node
	id       *identity.Pod
	observer *observe.Observer
	pace     *pace.Pace
	sandbox  *sandbox.Sandbox
	report   func()

	level    *corev1.ResourceRequirements // of the pod itself, as its cgroup has them; nil: not known yet
	progress *status.Resize               // while the resources differ from the allocated ones
	started  bool                         // a resize was granted and is not reported as completed
	behind   bool                         // the cgroup may have other limits than the pod
	after    time.Time                    // time of the next attempt after the runtime refused
}

// granted reports that the node gives the pod what it requests. The next attempt is immediate.
func (r *resizer) granted(pod *corev1.Pod) {
	r.started, r.behind = true, true
	r.id.Event("", corev1.EventTypeNormal, "ResizeStarted", "%s", resize.Message("Pod resize started", pod, ""))
}

// pending reports why the node does not give the pod what it requests.
func (r *resizer) pending(pod *corev1.Pod, why *status.Resize) {
	reason := "ResizeDeferred"
	if why.Reason == corev1.PodReasonInfeasible {
		reason = "ResizeInfeasible"
	}
	r.id.Event("", corev1.EventTypeWarning, reason, "%s", resize.Message("Pod resize "+why.Reason, pod, why.Message))
}

// retry makes the next attempt immediate, because the request has changed.
func (r *resizer) retry() { r.after = time.Time{} }

// resize sets the resources of the pod and of running containers to the allocated ones, and returns the containers
// that must restart for it.
func (r *resizer) resize(ctx context.Context, pod *corev1.Pod) (restart []plan.Kill) {
	if r.level == nil {
		r.level = resize.Actual(resize.Level(pod))
	}
	restart, changed := resize.Plan(pod, r.level, r.observer.Observed())
	if len(changed)+len(restart) == 0 && !resize.Differs(pod, r.level) {
		r.progress = nil
		if r.behind { // before a container starts that needs more than the pod had
			r.limit(pod)
		}
		if r.started {
			r.completed(pod)
		}
	} else if rest := r.after.Sub(r.node.Clock.Now()); rest > 0 {
		r.pace.RetryIn(rest)
	} else {
		r.actuate(ctx, pod, changed, len(restart) == 0)
	}
	return restart
}

func (r *resizer) completed(pod *corev1.Pod) {
	r.started, r.progress = false, nil
	r.id.Event("", corev1.EventTypeNormal, "ResizeCompleted", "%s", resize.Message("Pod resize completed", pod, ""))
}

// limit sets the limits of the pod's cgroup to the allocated resources.
func (r *resizer) limit(pod *corev1.Pod) {
	r.sandbox.Limit(pod)
	r.behind = false
}

// actuate updates the runtime. What it refuses is retried. all: no container must restart before the pod has its
// resources.
func (r *resizer) actuate(ctx context.Context, pod *corev1.Pod, list []*corev1.Container, all bool) {
	if r.progress == nil {
		r.progress = &status.Resize{Type: corev1.PodResizeInProgress}
		r.report()
	}
	if err := r.checkUsage(ctx, pod, list); err != nil {
		r.refused(pod, err.Error())
		r.retryLater(err)
		return
	}
	// At no time may a container have more than its pod.
	r.sandbox.Limit(resize.Widest(pod, r.level, r.observer.Observed()))
	var failed error
	for _, c := range list {
		id := r.observer.Observed().Latest(c.Name).ID
		err := r.node.Runtime.UpdateContainerResources(ctx, id, spec.Resources(pod, c, r.node.Memory))
		if runtime.Lost(err) {
			r.pace.RetryIn(time.Second)
			return
		}
		if err != nil {
			failed = err
			r.refused(pod, fmt.Sprintf("container %s: %v", c.Name, err))
			continue
		}
		r.observer.Resized(id, &c.Resources)
	}
	if failed != nil {
		r.retryLater(failed)
		return
	}
	r.progress = nil
	if all {
		r.limit(pod)
		r.level = resize.Actual(pod.Spec.Resources)
		if r.started {
			r.completed(pod)
		}
	}
}

func (r *resizer) refused(pod *corev1.Pod, why string) {
	r.id.Event("", corev1.EventTypeWarning, "ResizeError", "%s", resize.Message("Pod resize error", pod, why))
}

// retryLater shows the error in the status until the next attempt.
func (r *resizer) retryLater(err error) {
	r.progress = &status.Resize{Type: corev1.PodResizeInProgress, Reason: corev1.PodReasonError, Message: err.Error()}
	r.after = r.node.Clock.Now().Add(pace.Config)
	r.pace.RetryIn(pace.Config)
}

// checkUsage returns an error if a memory limit would be less than what is used.
func (r *resizer) checkUsage(ctx context.Context, pod *corev1.Pod, list []*corev1.Container) error {
	lowered := resize.Lowered(pod, r.level, r.observer.Observed(), list)
	if len(lowered) == 0 {
		return nil
	}
	all, err := r.node.Runtime.ListContainerStats(ctx, &cri.ContainerStatsFilter{
		LabelSelector: map[string]string{spec.LabelPodUID: string(pod.UID)}})
	if err != nil && grpcstatus.Code(err) != codes.Unimplemented {
		return fmt.Errorf("cannot read the memory usage of the pod: %w", err)
	}
	usage := map[string]uint64{}
	for _, s := range all {
		usage[s.GetAttributes().GetId()] = max(s.GetMemory().GetUsageBytes().GetValue(),
			s.GetMemory().GetWorkingSetBytes().GetValue()) // containerd before 1.7 has only the second
	}
	return resize.BelowUsage(lowered, usage)
}
