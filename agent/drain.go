package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/admission"
	"monopod/agent/evictor"
	"monopod/agent/shutdown"
	"monopod/agent/status"
)

// drain stops the pods of the node before the machine goes down. What has begun
// stays so until the agent ends.
type drain struct {
	a      *Agent
	asked  chan shutdown.Periods
	mu     sync.Mutex // guards what follows
	begun  bool
	done   bool
	ending []*worker
}

func newDrain(a *Agent) *drain { return &drain{a: a, asked: make(chan shutdown.Periods, 1)} }

var _ shutdown.Node = (*Agent)(nil)

// Shutdown implements shutdown.Node.
func (a *Agent) Shutdown(p shutdown.Periods) {
	d := a.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begun {
		return
	}
	d.begun = true
	d.asked <- p
}

// Progress implements shutdown.Node.
func (a *Agent) Progress() *shutdown.Progress {
	d := a.drain
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.begun {
		return nil
	}
	p := &shutdown.Progress{Done: d.done}
	for _, w := range d.ending {
		if !w.over.Load() {
			pod := w.current.Load()
			p.Running = append(p.Running, pod.Namespace+"/"+pod.Name)
		}
	}
	return p
}

// down says whether the node is on its way.
func (d *drain) down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun
}

// refuse keeps new pods out meanwhile.
func (d *drain) refuse() *status.Failure {
	if !d.down() {
		return nil
	}
	return admission.Rejected(shutdown.Refused, shutdown.RefusedText)
}

// run waits to be asked, then stops the pods.
func (d *drain) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case p := <-d.asked:
		d.stop(ctx, p)
	}
	d.mu.Lock()
	d.done = true
	d.mu.Unlock()
}

func (d *drain) stop(ctx context.Context, p shutdown.Periods) {
	d.a.log.Info("the node is shutting down: its pods are stopped", zap.Duration("within", p.Total))
	d.a.node.Poke()
	workers := d.a.all()
	var pods []*corev1.Pod
	for _, w := range workers {
		if !w.over.Load() {
			pods = append(pods, w.current.Load())
			d.note(w)
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	for _, stage := range p.Stages(pods, d.a.evict.Critical) {
		var ending []evictor.Pod
		for _, pod := range stage.Pods {
			w := workers[pod.UID]
			w.Evict(shutdown.Failure(), stage.Grace(pod))
			ending = append(ending, w)
		}
		d.a.evict.Await(ctx, ending, stage.Time+shutdownSlack)
	}
}

// shutdownSlack is for what follows the end of the last container of a stage.
const shutdownSlack = time.Second

func (d *drain) note(w *worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ending = append(d.ending, w)
}
