package agent

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod"
	"monopod/agent/pod/resize"
	"monopod/agent/podapi/status"
	"monopod/agent/predicates"
	"monopod/agent/pressure/evictor"
	"monopod/apiserver/kit/guard"
)

// admitter admits pods one after the other, in the order of the loop. It has a goroutine of its own because it writes
// checkpoints of allocations, and the loop must not wait for the disk.
type admitter struct {
	guard   *guard.Guard
	pods    *pods
	event   func(pod *corev1.Pod, container, eventType, reason, format string, args ...any)
	node    func(context.Context) *corev1.Node
	current func() *corev1.Node // the node as this agent wrote it last, for its resources
	place   placer
	evict   *evictor.Evictor
	// refuse rejects every pod while the node shuts down.
	refuse func(*corev1.Pod) *status.Failure
	// handlers run in this order; the first rejection counts.
	handlers []predicates.Handler
	wake     chan struct{}

	mu   sync.Mutex // guards jobs
	jobs []func()
}

// placer allocates exclusive CPUs, memory of NUMA nodes and devices to pods.
type placer interface {
	// Admit returns nil for a pod whose request can be satisfied, and allocates it.
	Admit(ctx context.Context, pod *corev1.Pod) *status.Failure
	// WithDevices returns the node with its unallocated devices.
	WithDevices(node *corev1.Node) *corev1.Node
	// Infeasible returns why a pod cannot be resized.
	Infeasible(pod, next *corev1.Pod) string
}

// enqueue adds a job at the end of the queue.
func (d *admitter) enqueue(job func()) {
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run runs the jobs until ctx ends.
func (d *admitter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		d.mu.Lock()
		jobs := d.jobs
		d.jobs = nil
		d.mu.Unlock()
		for _, job := range jobs {
			d.guard.Run("admission", job)
		}
	}
}

// admit decides in the background whether a new pod runs. A pod whose object is gone only has to end. Like upstream,
// admit rejects the pod if the decision itself fails.
func (d *admitter) admit(ctx context.Context, p *pod.Pod, gone bool) {
	d.enqueue(func() {
		var v pod.Verdict
		err := p.Call("admission", func() error {
			if !gone {
				v = d.decide(ctx, p)
			}
			return nil
		})
		if err != nil {
			v = pod.Verdict{Refused: predicates.Rejected("UnexpectedAdmissionError",
				"Unexpected error while the pod was admitted: %v", err)}
			d.recordRejection(p.Object(), v.Refused)
		}
		p.Decided(v)
	})
}

// decide calls the handlers. A pod that has finished or is being deleted is not rejected.
func (d *admitter) decide(ctx context.Context, p *pod.Pod) (v pod.Verdict) {
	object := p.Object()
	if status.Finished(object.Status.Phase) || object.DeletionTimestamp != nil {
		return pod.Verdict{}
	}
	critical := p.Static() || d.evict.Critical(object)
	object = resize.Allocated(object)
	if v.Refused = d.refuse(object); v.Refused == nil {
		if f := d.evict.Admit(object, critical); f != nil {
			v.Refused = predicates.Rejected(f.Reason, "%s", f.Message)
		}
	}
	if v.Refused == nil {
		v = d.runHandlers(ctx, object, critical)
	}
	if v.Refused == nil && len(v.Victims) == 0 { // with victims, readmit allocates the resources that they free
		v.Refused = d.place.Admit(ctx, object)
	}
	d.recordRejection(object, v.Refused)
	return v
}

// runHandlers calls the handlers. If resources for a critical pod are missing, other pods are preempted.
func (d *admitter) runHandlers(ctx context.Context, object *corev1.Pod, critical bool) (v pod.Verdict) {
	node, others := d.place.WithDevices(d.node(ctx)), d.pods.activeExcept(object)
	for _, ask := range d.handlers {
		v.Refused = ask(object, others, node)
		if v.Refused != nil && critical {
			if victims, ok := d.evict.Preempt(object, others, node, v.Refused); ok {
				for _, victim := range victims {
					if p := d.pods.get(victim.Object().UID); p != nil {
						v.Victims = append(v.Victims, p)
					}
				}
				others = slices.DeleteFunc(others, func(p *corev1.Pod) bool {
					return slices.ContainsFunc(victims, func(v evictor.Pod) bool { return v.Object().UID == p.UID })
				})
				v.Refused = ask(object, others, node)
			}
		}
		if v.Refused != nil {
			return v
		}
	}
	return v
}

// readmit decides again about a pod whose victims have ended. It admits the pod, unless the pod is being deleted or
// other pods have taken the resources.
func (d *admitter) readmit(ctx context.Context, p *pod.Pod) {
	d.enqueue(func() {
		var refused *status.Failure
		defer func() { p.Readmitted(refused) }()
		object := p.Object()
		if object.DeletionTimestamp != nil {
			return
		}
		if refused = d.runHandlers(ctx, object, false).Refused; refused == nil {
			refused = d.place.Admit(ctx, object)
		}
		d.recordRejection(object, refused)
	})
}

func (d *admitter) recordRejection(pod *corev1.Pod, f *status.Failure) {
	if f != nil {
		d.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
}

// checkResize returns why a pod with the resources in allocated cannot be resized to those in next: the resize is
// infeasible or deferred. It returns nil if the node has the resources.
func (d *admitter) checkResize(allocated, next *corev1.Pod) *status.Resize {
	if why := d.place.Infeasible(allocated, next); why != "" {
		return resize.Infeasible(why)
	}
	return resize.Pending(next, d.pods.activeExcept(next), d.current())
}
