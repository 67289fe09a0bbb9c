package agent

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/admission"
	"monopod/agent/pod"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/evictor"
	"monopod/apiserver/process/guard"
)

// admitter lets pods in, one after the other in the order in which the loop hears of
// them. It writes down what they are given, for which the loop must not wait.
type admitter struct {
	guard *guard.Guard
	pods  *pods
	event func(pod *corev1.Pod, container, eventType, reason, format string, args ...any)
	node  func() *corev1.Node
	place placer
	evict *evictor.Evictor
	// refuse keeps all pods out while the node shuts down.
	refuse func(*corev1.Pod) *status.Failure
	// handlers are asked in this order; the first refusal counts.
	handlers []admission.Handler
	wake     chan struct{}

	mu   sync.Mutex // guards jobs
	jobs []func()   // no more than pods
}

// placer gives pods exclusive CPUs, memory of NUMA nodes and devices.
type placer interface {
	// Admit is nil for a pod that can have what it asks for, and from now on has.
	Admit(ctx context.Context, pod *corev1.Pod) *status.Failure
	// Room is the node with the devices that are left.
	Room(node *corev1.Node) *corev1.Node
	// Infeasible says why a pod cannot be resized.
	Infeasible(pod, next *corev1.Pod) string
}

// do has a job done after those before it.
func (d *admitter) do(job func()) {
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *admitter) take() []func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	jobs := d.jobs
	d.jobs = nil
	return jobs
}

// run does the jobs until ctx ends.
func (d *admitter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		for _, job := range d.take() {
			d.guard.Run("admission", job)
		}
	}
}

// judge decides what becomes of a pod that is new to this agent; one that is gone only
// has to end. A pod that cannot be judged is refused, as upstream does.
func (d *admitter) judge(ctx context.Context, p *pod.Pod, gone bool) {
	d.do(func() {
		var v pod.Verdict
		err := p.Call("admission", func() error {
			if !gone {
				v = d.verdict(ctx, p)
			}
			return nil
		})
		if err != nil {
			v = pod.Verdict{Refused: admission.Rejected("UnexpectedAdmissionError", "Unexpected error while the pod was admitted: %v", err)}
			d.tellRefused(p.Object(), v.Refused)
		}
		p.Judged(v)
	})
}

// verdict asks the handlers. A pod that has finished or is being deleted is not refused
// any more.
func (d *admitter) verdict(ctx context.Context, p *pod.Pod) (v pod.Verdict) {
	object := p.Object()
	if status.Finished(object.Status.Phase) || object.DeletionTimestamp != nil {
		return pod.Verdict{}
	}
	critical := p.Static() || d.evict.Critical(object)
	object = resize.Allocated(object)
	if v.Refused = d.refuse(object); v.Refused == nil {
		if f := d.evict.Admit(object, critical); f != nil {
			v.Refused = admission.Rejected(f.Reason, "%s", f.Message)
		}
	}
	if v.Refused == nil {
		v = d.ask(object, critical)
	}
	if v.Refused == nil && len(v.Victims) == 0 { // else it is asked when there is room
		v.Refused = d.place.Admit(ctx, object)
	}
	d.tellRefused(object, v.Refused)
	return v
}

// ask asks the handlers. A critical pod for which there is no room gets it from others,
// who are told to go.
func (d *admitter) ask(object *corev1.Pod, critical bool) (v pod.Verdict) {
	node, others := d.place.Room(d.node()), d.pods.activeBeside(object)
	for _, ask := range d.handlers {
		v.Refused = ask(object, others, node)
		if v.Refused != nil && critical {
			if victims, ok := d.evict.MakeRoom(object, others, node, v.Refused); ok {
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

// readmit judges a pod again whose victims are gone: it comes in, unless it is to go
// itself or others were faster.
func (d *admitter) readmit(ctx context.Context, p *pod.Pod) {
	d.do(func() {
		var refused *status.Failure
		defer func() { p.Readmitted(refused) }()
		object := p.Object()
		if object.DeletionTimestamp != nil {
			return
		}
		if refused = d.ask(object, false).Refused; refused == nil {
			refused = d.place.Admit(ctx, object)
		}
		d.tellRefused(object, refused)
	})
}

func (d *admitter) tellRefused(pod *corev1.Pod, f *status.Failure) {
	if f != nil {
		d.event(pod, "", corev1.EventTypeWarning, f.Reason, "%s", f.Message)
	}
}

// fits says why the node cannot give a pod, which has what had says, what it asks for:
// never, or not now.
func (d *admitter) fits(had, pod *corev1.Pod) *status.Resize {
	if why := d.place.Infeasible(had, pod); why != "" {
		return resize.Infeasible(why)
	}
	return resize.Room(pod, d.pods.activeBeside(pod), d.node())
}
