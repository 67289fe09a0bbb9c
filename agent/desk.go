package agent

import (
	"context"
	"sync"

	"monopod/agent/admission"
	"monopod/agent/pod"
)

// desk lets pods in, one after the other in the order in which the loop hears of them.
// It writes down what they are given, for which the loop must not wait.
type desk struct {
	wake chan struct{}

	mu   sync.Mutex // guards jobs
	jobs []func()   // no more than pods
}

func newDesk() *desk { return &desk{wake: make(chan struct{}, 1)} }

// do has a job done after those before it.
func (d *desk) do(job func()) {
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *desk) take() []func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	jobs := d.jobs
	d.jobs = nil
	return jobs
}

// admitAll does what comes to the desk until ctx ends.
func (a *Agent) admitAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.desk.wake:
		}
		for _, job := range a.desk.take() {
			a.guard.Run("admission", job)
		}
	}
}

// letIn is the verdict on a pod that only has to end.
func letIn(context.Context, *pod.Pod) pod.Verdict { return pod.Verdict{} }

// verdict judges a pod. One that cannot be judged is refused, as upstream does.
func (a *Agent) verdict(ctx context.Context, p *pod.Pod, judge func(context.Context, *pod.Pod) pod.Verdict) (v pod.Verdict) {
	err := p.Call("admission", func() error { v = judge(ctx, p); return nil })
	if err != nil {
		v = pod.Verdict{Refused: admission.Rejected("UnexpectedAdmissionError", "Unexpected error while the pod was admitted: %v", err)}
		a.tellRefused(p.Object(), v.Refused)
	}
	return v
}
