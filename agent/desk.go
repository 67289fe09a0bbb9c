package agent

import (
	"context"
	"sync"

	"monopod/agent/admission"
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
func letIn(context.Context, *worker) verdict { return verdict{} }

// verdict judges a pod. One that cannot be judged is refused, as upstream does.
func (a *Agent) verdict(ctx context.Context, w *worker, judge func(context.Context, *worker) verdict) (v verdict) {
	err := w.guarded("admission", func() error { v = judge(ctx, w); return nil })
	if err != nil {
		v = verdict{refused: admission.Rejected("UnexpectedAdmissionError", "Unexpected error while the pod was admitted: %v", err)}
		a.tellRefused(w.current.Load(), v.refused)
	}
	return v
}

// admitted tells the worker what was decided.
func (w *worker) admitted(v verdict) {
	w.room = v.room
	w.entered.Store(v.refused == nil)
	if v.refused != nil {
		w.refuse(v.refused, nil)
	}
	close(w.judged)
}
