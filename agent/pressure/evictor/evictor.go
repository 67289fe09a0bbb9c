// Package evictor keeps a node from running out of memory, disk and process IDs. It checks the signals every ten
// seconds, and when the kernel reports memory pressure, and evicts pods one by one until the pressure ends. It also
// evicts pods that exceed their disk limits, and preempts pods for critical ones.
//
// Package eviction decides which pods are evicted, and why.
package evictor

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/status"
	"monopod/agent/pressure/eviction"
	"monopod/agent/stats"
)

// Pod is a pod on the node.
type Pod interface {
	// Object returns the current, shared object of the pod.
	Object() *corev1.Pod
	// Ending reports whether the pod is being stopped, or has ended.
	Ending() bool
	// Over reports whether no container of the pod runs or will run.
	Over() bool
	// AwaitOver waits until the pod is over. It returns false if limit fires or ctx ends first.
	AwaitOver(ctx context.Context, limit <-chan time.Time) bool
	// Evict ends the pod within grace. It returns false if the pod is already ending.
	Evict(why *status.Failure, grace time.Duration) bool
}

// Node is notified of pressure.
type Node interface {
	// Poke makes the node update its conditions.
	Poke()
	Event(eventType, reason, format string, args ...any)
}

// Usage returns the usage of pods; stats.Source implements it.
type Usage interface {
	Summary(ctx context.Context, cpuAndMemory bool) (*statsapi.Summary, error)
	Disks(ctx context.Context, want func(*corev1.Pod) bool) (map[types.UID]stats.Disk, error)
}

// Deps are an Evictor's dependencies. All except the two watches are required.
type Deps struct {
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Node    Node
	Usage   Usage
	// Signals reads the node's signals.
	Signals func() eviction.Observations
	// Pods returns all pods of the node by UID.
	Pods func() map[types.UID]Pod
	// PodsListed reports whether Pods is complete. It is not right after the start of the agent.
	PodsListed func() bool
	// Static reports whether a pod is static.
	Static func(*corev1.Pod) bool
	// Reclaim garbage-collects containers and images.
	Reclaim func(ctx context.Context)
	// WatchMemory calls short when the kernel reports memory pressure, until ctx ends; may be nil.
	WatchMemory func(ctx context.Context, short func()) error
	// WatchUsage calls passed when memory usage has grown by the last value from left; may be nil.
	WatchUsage func(ctx context.Context, left <-chan int64, passed func()) error
}

// Evictor evicts pods when the node is under pressure.
type Evictor struct {
	Deps
	policy    eviction.Policy
	wake      chan struct{}
	left      chan int64             // bytes of memory until the next threshold, as last observed
	evicted   *prometheus.CounterVec // pods, by signal
	preempted *prometheus.CounterVec // critical pods that caused preemptions, by the missing resource

	// The fields below belong to the goroutine of Run.
	tracker  eviction.Tracker
	nextWalk time.Time // folders are not walked again before then

	pressure atomic.Pointer[[]corev1.NodeConditionType] // for readers on other goroutines; nil: none yet
}

const (
	period = 10 * time.Second
	// hardGrace is the grace period of an immediate eviction, cleanUpTime the maximum time that the next eviction waits
	// for the pod to end (both upstream's).
	hardGrace   = time.Second
	cleanUpTime = 30 * time.Second
)

// New returns an Evictor and registers metrics with upstream's names. The zero policy evicts nothing.
func New(deps Deps, policy eviction.Policy) (*Evictor, error) {
	e := &Evictor{Deps: deps, policy: policy, wake: make(chan struct{}, 1), left: make(chan int64, 1),
		evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_evictions", Help: "Pods evicted, by signal.",
		}, []string{"eviction_signal"}), preempted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_preemptions", Help: "Pods preempted for critical pods, by the missing resource.",
		}, []string{"preemption_signal"})}
	return e, errors.Join(deps.Metrics.Register(e.evicted), deps.Metrics.Register(e.preempted))
}

// Run checks the node until ctx ends.
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
		for e.evictOnce(ctx) && ctx.Err() == nil { // a pod was evicted: check again
		}
	}
}

// Poke makes Run check the signals now.
func (e *Evictor) Poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// ReadSignals reads the signals and updates the node's conditions. It must be called before Run or on its goroutine.
// due are the thresholds that require evictions.
func (e *Evictor) ReadSignals() (due []eviction.Met) {
	seen := e.Signals()
	due, pressure := e.tracker.Update(e.policy, seen, e.Clock.Now())
	select {
	case <-e.left: // the last one was not received
	default:
	}
	select {
	case e.left <- e.policy.UntilThreshold(seen):
	default:
	}
	changed := !slices.Equal(e.Pressure(), pressure)
	e.pressure.Store(&pressure)
	if changed {
		e.Log.Info("pressure on the node changed", zap.Any("conditions", pressure))
		e.Node.Poke()
	}
	return due
}

// Pressure returns the node's pressure conditions.
func (e *Evictor) Pressure() []corev1.NodeConditionType {
	if p := e.pressure.Load(); p != nil {
		return *p
	}
	return nil
}

// Admit rejects pods that the node would have to evict next. It admits pods that ran before this agent started.
func (e *Evictor) Admit(pod *corev1.Pod, critical bool) *status.Failure {
	if pod.Status.StartTime != nil {
		return nil
	}
	return eviction.Admit(pod, critical, e.Pressure())
}

// Critical reports whether a pod is never evicted.
func (e *Evictor) Critical(pod *corev1.Pod) bool {
	return eviction.Critical(pod, e.policy.CriticalAnnotation) || e.Static(pod)
}

// evictOnce evicts all pods that exceed their disk limits, or else at most one pod because of pressure. again means
// that the signals may have changed.
func (e *Evictor) evictOnce(ctx context.Context) (again bool) {
	due := e.ReadSignals()
	if !e.PodsListed() {
		return false
	}
	if gone := e.evictOverLimits(ctx); len(gone) > 0 {
		e.Await(ctx, gone, cleanUpTime)
		return true
	}
	if len(due) == 0 {
		return false
	}
	met := due[0]
	e.Log.Warn("the node is low on a resource", zap.String("signal", string(met.Signal)),
		zap.Int64("free", met.Amount.Free), zap.Int64("total", met.Amount.Total))
	e.Node.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", met.Signal.Resource())
	if met.Signal.OnDisk() {
		e.Reclaim(ctx)
		if due = e.ReadSignals(); !slices.ContainsFunc(due, func(m eviction.Met) bool { return m.Signal.OnDisk() }) {
			return len(due) > 0
		}
		met = due[0]
	}
	pod := e.evictFirst(ctx, met)
	if pod == nil {
		e.Log.Warn("no pod can be evicted", zap.String("signal", string(met.Signal)))
		return false
	}
	e.Await(ctx, []Pod{pod}, cleanUpTime)
	return true
}

// Await waits until no container of the pods runs, at most for limit.
func (e *Evictor) Await(ctx context.Context, pods []Pod, limit time.Duration) {
	timer := e.Clock.NewTimer(limit)
	defer timer.Stop()
	for _, pod := range pods {
		if pod.AwaitOver(ctx, timer.C()) {
			continue
		}
		if ctx.Err() == nil {
			e.Log.Warn("an evicted pod is slow to end", zap.String("uid", string(pod.Object().UID)))
		}
		return
	}
}
