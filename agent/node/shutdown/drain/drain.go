// Package drain stops the pods of the node before the machine shuts down.
//
//   - times.go: records the last graceful node shutdown, so that it is known after a reboot
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
	// Known is closed when the node has listed its pods.
	Known <-chan struct{}
	// Poke triggers a check of the node's conditions.
	Poke func()
	// Critical reports whether a pod belongs to the last stage.
	Critical func(*corev1.Pod) bool
	// Await waits until pods have ended, at most for limit.
	Await func(ctx context.Context, pods []evictor.Pod, limit time.Duration)
	// Resume is called when a shutdown is cancelled: pods that TakeAgain returns may run again.
	Resume func()
}

// Drain stops the pods of a node. Its methods may be called on any goroutine.
type Drain struct {
	deps  Deps
	wake  chan struct{}
	times *Record            // used only by Run
	mu    sync.Mutex         // guards what follows
	now   *descent           // nil: no shutdown
	again map[types.UID]bool // static pods that the last descent stopped
}

// descent is one shutdown. It ends with the agent, or when it is cancelled.
type descent struct {
	periods shutdown.Periods
	cancel  context.CancelFunc // nil: not started
	over    chan struct{}      // closed when no more pods will be stopped
	missed  bool               // the pods were not listed in time
	ending  []evictor.Pod
	kept    []types.UID // stopped, or rejected
}

// New returns a Drain; file records the last shutdown.
func New(deps Deps, file checkpoint.File) (*Drain, error) {
	record, err := NewRecord(deps.Metrics, file)
	return &Drain{deps: deps, wake: make(chan struct{}, 1), times: record}, err
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

// StayUp implements logind.Node. Pods that were stopped end; static pods start again.
func (d *Drain) StayUp() {
	d.callOff()
	d.deps.Poke()
	d.deps.Resume()
}

// Progress implements shutdown.Node.
func (d *Drain) Progress() *shutdown.Progress {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		return nil
	}
	p := &shutdown.Progress{Done: closed(d.now.over), Unknown: d.now.missed || !closed(d.deps.Known)}
	for _, ending := range d.now.ending {
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

// begin starts a descent, or returns the current one.
func (d *Drain) begin(p shutdown.Periods) *descent {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		d.now = &descent{periods: p, over: make(chan struct{})}
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return d.now
}

// callOff cancels the descent; after it returns, no further pod is stopped.
func (d *Drain) callOff() {
	d.mu.Lock()
	now := d.now
	d.now = nil
	d.mu.Unlock()
	if now == nil {
		return
	}
	if now.cancel != nil {
		now.cancel()
		<-now.over
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again = map[types.UID]bool{}
	for _, uid := range now.kept {
		d.again[uid] = true
	}
}

// TakeAgain returns the static pods that may run again, if their files still exist.
func (d *Drain) TakeAgain() (again map[types.UID]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	again, d.again = d.again, nil
	return again
}

// Down reports whether the node is shutting down.
func (d *Drain) Down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now != nil
}

// Refuse rejects new pods during a shutdown. Until the pods are listed, any pod may have run before: those are
// admitted, and stopped like the others. Once it is too late for that they are rejected too, which also stops
// them.
func (d *Drain) Refuse(pod *corev1.Pod) *status.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil || !d.now.missed && !closed(d.deps.Known) {
		return nil
	}
	d.now.kept = append(d.now.kept, pod.UID)
	return predicates.Rejected(shutdown.Refused, shutdown.RefusedText)
}

// Run waits for a shutdown, then stops the pods, until ctx ends.
func (d *Drain) Run(ctx context.Context) {
	d.note(d.times.Load())
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		below, cancel := context.WithCancel(ctx)
		if now := d.take(cancel); now != nil {
			d.descend(below, now)
			close(now.over)
		}
		cancel()
	}
}

func (d *Drain) note(err error) {
	if err != nil {
		d.deps.Log.Warn("failed to record the time of the last shutdown", zap.Error(err))
	}
}

// take returns the descent to start; nil if there is none, or it was cancelled.
func (d *Drain) take(cancel context.CancelFunc) *descent {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil || d.now.cancel != nil {
		return nil
	}
	d.now.cancel = cancel
	return d.now
}

// descend performs the whole shutdown. Its end is recorded if every pod was stopped.
func (d *Drain) descend(ctx context.Context, now *descent) {
	d.note(d.times.Begin(d.deps.Clock.Now()))
	left, known := d.learn(ctx, now)
	if d.stop(ctx, now, left); known && ctx.Err() == nil {
		d.note(d.times.End(d.deps.Clock.Now()))
	}
}

// learn waits until the pods are listed, which takes a moment after a start, but no longer than the shutdown may
// take. left is the remaining time.
func (d *Drain) learn(ctx context.Context, now *descent) (left shutdown.Periods, known bool) {
	if closed(d.deps.Known) {
		return now.periods, true
	}
	start := d.deps.Clock.Now()
	timer := d.deps.Clock.NewTimer(now.periods.Bound())
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-d.deps.Known:
	case <-timer.C():
		d.miss(now)
	}
	return now.periods.Within(now.periods.Needs() - d.deps.Clock.Since(start)), !now.missed && closed(d.deps.Known)
}

// miss gives up waiting for the list, unless it arrives at the last moment.
func (d *Drain) miss(now *descent) {
	d.mu.Lock()
	now.missed = !closed(d.deps.Known)
	d.mu.Unlock()
	if now.missed { // only this goroutine writes it
		d.deps.Log.Warn("the pods were not listed in time, pods that are listed later are rejected")
	}
}

// stop stops the pods, one stage after the other, until ctx ends.
func (d *Drain) stop(ctx context.Context, now *descent, within shutdown.Periods) {
	if ctx.Err() != nil {
		return
	}
	d.deps.Log.Info("the node is shutting down, stopping its pods", zap.Duration("within", within.Bound()))
	d.deps.Poke()
	all := d.deps.Pods()
	for _, stage := range within.Stages(d.living(now, all), d.deps.Critical) {
		if ctx.Err() != nil {
			return
		}
		var ending []evictor.Pod
		for _, pod := range stage.Pods {
			p := all[pod.UID]
			d.keep(now, pod.UID)
			p.Evict(shutdown.Failure(), stage.Grace(pod))
			ending = append(ending, p)
		}
		d.deps.Await(ctx, ending, stage.Time+shutdown.Slack)
	}
}

// living returns the pods to stop, oldest first.
func (d *Drain) living(now *descent, all map[types.UID]evictor.Pod) (pods []*corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range all {
		if !p.Over() {
			pods = append(pods, p.Object())
			now.ending = append(now.ending, p)
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return pods
}

func (d *Drain) keep(now *descent, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now.kept = append(now.kept, uid)
}
