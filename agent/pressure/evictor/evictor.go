// Package evictor keeps a node from running out of memory, disk and process ids:
// it looks every ten seconds, and when the kernel reports that memory is short,
// and ends pods one by one until there is enough. It also ends those beyond their
// own limits of disk, and those that make room for a critical one.
//
// Which pods go, and why, is decided by package eviction.
package evictor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"monopod/agent/node/stats"
	"monopod/agent/pod/status"
	"monopod/agent/pressure/eviction"
)

// Pod is one that the node runs.
type Pod interface {
	// Object is the pod as it is now; it is shared.
	Object() *corev1.Pod
	// Ending reports whether it is being stopped, or has ended.
	Ending() bool
	// Over reports whether nothing of it runs any more, or will.
	Over() bool
	// AwaitOver waits until it is over; false: limit came first, or the end of ctx.
	AwaitOver(ctx context.Context, limit <-chan time.Time) bool
	// Evict ends it within grace; false: it is ending already.
	Evict(why *status.Failure, grace time.Duration) bool
}

// Node is whom the Evictor tells of scarcity.
type Node interface {
	// Poke has the node's conditions looked at.
	Poke()
	Event(eventType, reason, format string, args ...any)
}

// Usage is what pods use of the node; stats.Source knows.
type Usage interface {
	Summary(ctx context.Context, cpuAndMemory bool) (*statsapi.Summary, error)
	Disks(ctx context.Context, want func(*corev1.Pod) bool) (map[types.UID]stats.Disk, error)
}

// Deps are what an Evictor works with; all but the two that watch are required.
type Deps struct {
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Node    Node
	Usage   Usage
	// Signals reads what the node has left.
	Signals func() eviction.Observations
	// Pods are all pods of the node by UID.
	Pods func() map[types.UID]Pod
	// Known reports whether none is missing any more, as some are after the start.
	Known func() bool
	// Static reports whether a pod comes from a file.
	Static func(*corev1.Pod) bool
	// Reclaim frees the disk of what nobody needs.
	Reclaim func(ctx context.Context)
	// WatchMemory calls short when the kernel reports that memory is short, until
	// ctx ends; nil: nobody does.
	WatchMemory func(ctx context.Context, short func()) error
	// WatchUsage calls passed once more memory is in use by what left said last; nil:
	// nobody does.
	WatchUsage func(ctx context.Context, left <-chan int64, passed func()) error
}

// Evictor ends pods for want of what the node runs short of.
type Evictor struct {
	Deps
	policy  eviction.Policy
	wake    chan struct{}
	left    chan int64             // bytes of memory until the next threshold, as last seen
	evicted *prometheus.CounterVec // by signal
	// preempted counts who had to make room, by the resource that was short.
	preempted *prometheus.CounterVec

	// What follows belongs to Run's goroutine.
	tracker eviction.Tracker
	walk    time.Time // not before then are folders walked again

	mu       sync.RWMutex // guards what follows
	pressure []corev1.NodeConditionType
}

const (
	period = 10 * time.Second
	// hardGrace is what a pod gets that goes at once, and cleanUpTime how long the
	// next one waits for it to be gone (upstream's both).
	hardGrace   = time.Second
	cleanUpTime = 30 * time.Second
)

// New registers metrics with upstream's names. The zero policy ends nobody.
func New(deps Deps, policy eviction.Policy) (*Evictor, error) {
	e := &Evictor{Deps: deps, policy: policy, wake: make(chan struct{}, 1), left: make(chan int64, 1), evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_evictions", Help: "Pods evicted, by signal.",
	}, []string{"eviction_signal"}), preempted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_preemptions", Help: "Times that pods had to make room for a critical one, by the resource that was short.",
	}, []string{"preemption_signal"})}
	return e, errors.Join(deps.Metrics.Register(e.evicted), deps.Metrics.Register(e.preempted))
}

// Run looks after the node until ctx ends.
func (e *Evictor) Run(ctx context.Context) {
	ticker := e.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-e.wake:
		}
		for e.pass(ctx) && ctx.Err() == nil { // a pod went: what holds now?
		}
	}
}

// Poke has the signals looked at now.
func (e *Evictor) Poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Look reads the signals, before Run or on its goroutine; due are the thresholds
// because of which pods must go.
func (e *Evictor) Look() (due []eviction.Met) {
	seen := e.Signals()
	due, pressure := e.tracker.Update(e.policy, seen, e.Clock.Now())
	e.expect(e.policy.Left(seen))
	e.mu.Lock()
	changed := !slices.Equal(e.pressure, pressure)
	e.pressure = pressure
	e.mu.Unlock()
	if changed {
		e.Log.Info("pressure on the node changed", zap.Any("conditions", pressure))
		e.Node.Poke()
	}
	return due
}

// Pressure are the conditions the node is in.
func (e *Evictor) Pressure() []corev1.NodeConditionType {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.pressure
}

// Admit keeps pods out that the node would have to evict next. One that ran before
// this agent started was let in then.
func (e *Evictor) Admit(pod *corev1.Pod, critical bool) *status.Failure {
	if pod.Status.StartTime != nil {
		return nil
	}
	return eviction.Admit(pod, critical, e.Pressure())
}

// Critical pods never go.
func (e *Evictor) Critical(pod *corev1.Pod) bool {
	return eviction.Critical(pod, e.policy.CriticalAnnotation) || e.Static(pod)
}

// pass ends at most one pod for want of something, and those beyond their limits
// of disk; again says that one went and that the signals may differ now.
func (e *Evictor) pass(ctx context.Context) (again bool) {
	due := e.Look()
	if !e.Known() {
		return false
	}
	if gone := e.overLimits(ctx); len(gone) > 0 {
		e.Await(ctx, gone, cleanUpTime)
		return true
	}
	if len(due) == 0 {
		return false
	}
	met := due[0]
	e.Log.Warn("the node is low on a resource", zap.String("signal", string(met.Signal)), zap.Int64("free", met.Amount.Free), zap.Int64("total", met.Amount.Total))
	e.Node.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", met.Signal.Resource())
	if met.Signal.OnDisk() {
		e.Reclaim(ctx)
		if due = e.Look(); !slices.ContainsFunc(due, func(m eviction.Met) bool { return m.Signal.OnDisk() }) {
			return len(due) > 0
		}
		met = due[0]
	}
	pod := e.choose(ctx, met)
	if pod == nil {
		e.Log.Warn("no pod can be evicted", zap.String("signal", string(met.Signal)))
		return false
	}
	e.Await(ctx, []Pod{pod}, cleanUpTime)
	return true
}

// Await waits until nothing of the pods runs any more, though not longer than
// limit.
func (e *Evictor) Await(ctx context.Context, pods []Pod, limit time.Duration) {
	timer := e.Clock.NewTimer(limit)
	defer timer.Stop()
	for _, pod := range pods {
		if pod.AwaitOver(ctx, timer.C()) {
			continue
		}
		if ctx.Err() == nil {
			e.Log.Warn("an evicted pod takes long to end", zap.String("uid", string(pod.Object().UID)))
		}
		return
	}
}
