// Package drain stops the pods of the node before the machine shuts down.
//
//   - record.go: stores the time of the last graceful node shutdown for the metrics after a reboot
package drain

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host/checkpoint"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/logind"
	"monopod/agent/podapi/status"
	"monopod/agent/predicates"
	"monopod/agent/pressure/evictor"
)

// Deps are a Drain's dependencies; all are required. The functions may be called once Run runs.
type Deps struct {
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Pods returns the node's pods by UID.
	Pods func() map[types.UID]evictor.Pod
	// PodsListed is closed when the node has listed its pods.
	PodsListed <-chan struct{}
	// Poke triggers a check of the node's conditions.
	Poke func()
	// Critical reports whether a pod is critical, so that it ends in the last stage.
	Critical func(*corev1.Pod) bool
	// Await waits until pods have ended, at most for limit.
	Await func(ctx context.Context, pods []evictor.Pod, limit time.Duration)
	// Resume is called when a shutdown is cancelled: pods that TakeRestartable returns may run again.
	Resume func()
}

// Drain stops the pods of a node. Its methods may be called on any goroutine.
type Drain struct {
	deps        Deps
	wake        chan struct{}
	record      *Record            // used only by Run
	mu          sync.Mutex         // guards the fields below
	current     *shutdownRun       // nil: no shutdown
	restartable map[types.UID]bool // pods that a cancelled shutdown has stopped
}

// shutdownRun is one shutdown. It ends with the agent, or when it is cancelled.
type shutdownRun struct {
	periods shutdown.Periods
	cancel  context.CancelFunc // nil: not started
	over    chan struct{}      // closed when no more pods will be stopped
	missed  bool               // the pods were not listed in time
	ending  []evictor.Pod
	stopped []types.UID // pods that were stopped or rejected
}

// New returns a Drain that records the last shutdown in file.
func New(deps Deps, file checkpoint.File) (*Drain, error) {
	record, err := NewRecord(deps.Metrics, file)
	return &Drain{deps: deps, wake: make(chan struct{}, 1), record: record}, err
}

var (
	_ shutdown.Node = (*Drain)(nil)
	_ logind.Node   = (*Drain)(nil)
)

// Shutdown implements shutdown.Node.
func (d *Drain) Shutdown(p shutdown.Periods) { d.begin(p) }

// StopPods implements logind.Node.
func (d *Drain) StopPods(ctx context.Context, p shutdown.Periods) {
	select {
	case <-ctx.Done():
	case <-d.begin(p).over:
	}
}

// CancelShutdown implements logind.Node. After it returns, no further pod is stopped. Pods that are being stopped still
// end; static pods start again.
func (d *Drain) CancelShutdown() {
	d.mu.Lock()
	run := d.current
	d.current = nil
	d.mu.Unlock()
	if run != nil {
		if run.cancel != nil {
			run.cancel()
			<-run.over
		}
		d.mu.Lock()
		d.restartable = map[types.UID]bool{}
		for _, uid := range run.stopped {
			d.restartable[uid] = true
		}
		d.mu.Unlock()
	}
	d.deps.Poke()
	d.deps.Resume()
}

// Progress implements shutdown.Node.
func (d *Drain) Progress() *shutdown.Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		return nil
	}
	p := &shutdown.Progress{Done: closed(d.current.over), Unknown: d.current.missed || !closed(d.deps.PodsListed)}
	for _, ending := range d.current.ending {
		if !ending.Over() {
			pod := ending.Object()
			p.Running = append(p.Running, pod.Namespace+"/"+pod.Name)
		}
	}
	return p
}

// closed reports whether a channel without values is closed.
func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// begin starts a shutdown, or returns the current one.
func (d *Drain) begin(p shutdown.Periods) *shutdownRun {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		d.current = &shutdownRun{periods: p, over: make(chan struct{})}
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return d.current
}

// TakeRestartable returns once the pods that a cancelled shutdown has stopped. Static pods among them may run again.
func (d *Drain) TakeRestartable() (again map[types.UID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again, d.restartable = d.restartable, nil
	return again
}

// ShuttingDown reports whether the node is shutting down.
func (d *Drain) ShuttingDown() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current != nil
}

// Refuse rejects new pods during a shutdown. Until the pods are listed, any pod may have run before the agent started:
// these are admitted, and stopped like the others. After the shutdown has given up waiting for the list, they are
// rejected too, which also stops them.
func (d *Drain) Refuse(pod *corev1.Pod) *status.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil || !d.current.missed && !closed(d.deps.PodsListed) {
		return nil
	}
	d.current.stopped = append(d.current.stopped, pod.UID)
	return predicates.Rejected(shutdown.Refused, shutdown.RefusedText)
}

// Run waits for a shutdown, then stops the pods, until ctx ends.
func (d *Drain) Run(ctx context.Context) {
	d.logRecordError(d.record.Load())
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		below, cancel := context.WithCancel(ctx)
		d.mu.Lock()
		run := d.current
		starts := run != nil && run.cancel == nil // false: it was cancelled
		if starts {
			run.cancel = cancel
		}
		d.mu.Unlock()
		if starts {
			d.logRecordError(d.record.Begin(d.deps.Clock.Now()))
			left, known := d.awaitList(below, run)
			if d.stop(below, run, left); known && below.Err() == nil { // every pod was stopped
				d.logRecordError(d.record.End(d.deps.Clock.Now()))
			}
			close(run.over)
		}
		cancel()
	}
}

func (d *Drain) logRecordError(err error) {
	if err != nil {
		d.deps.Log.Warn("failed to record the time of the last shutdown", zap.Error(err))
	}
}

// awaitList waits until the pods are listed, which takes a moment after the start of the agent, but no longer than the
// periods of the shutdown. left is the remaining time.
func (d *Drain) awaitList(ctx context.Context, run *shutdownRun) (left shutdown.Periods, known bool) {
	if closed(d.deps.PodsListed) {
		return run.periods, true
	}
	start := d.deps.Clock.Now()
	timer := d.deps.Clock.NewTimer(run.periods.Bound())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-d.deps.PodsListed:
	case <-timer.C():
		d.mu.Lock()
		run.missed = !closed(d.deps.PodsListed) // the list may just have arrived
		d.mu.Unlock()
		if run.missed { // only this goroutine writes it
			d.deps.Log.Warn("the pods were not listed in time, pods that are listed later are rejected")
		}
	}
	return run.periods.Within(run.periods.Needs() - d.deps.Clock.Since(start)), !run.missed && closed(d.deps.PodsListed)
}

// stop stops the pods, one stage after the other, until ctx ends.
func (d *Drain) stop(ctx context.Context, run *shutdownRun, within shutdown.Periods) {
	if ctx.Err() != nil {
		return
	}
	d.deps.Log.Info("the node is shutting down, stopping its pods", zap.Duration("within", within.Bound()))
	d.deps.Poke()
	all := d.deps.Pods()
	var pods []*corev1.Pod // to stop, the oldest first
	d.mu.Lock()
	for _, p := range all {
		if !p.Over() {
			pods = append(pods, p.Object())
			run.ending = append(run.ending, p)
		}
	}
	d.mu.Unlock()
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	for _, stage := range within.Stages(pods, d.deps.Critical) {
		if ctx.Err() != nil {
			return
		}
		var ending []evictor.Pod
		for _, pod := range stage.Pods {
			p := all[pod.UID]
			d.mu.Lock()
			run.stopped = append(run.stopped, pod.UID)
			d.mu.Unlock()
			p.Evict(shutdown.Failure(), stage.Grace(pod))
			ending = append(ending, p)
		}
		d.deps.Await(ctx, ending, stage.Time+shutdown.Slack)
	}
}
