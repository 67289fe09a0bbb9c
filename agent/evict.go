package agent

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

	"monopod/agent/eviction"
	"monopod/agent/host"
	"monopod/agent/status"
)

// evictor keeps the node from running out of memory, disk and process ids: it
// looks every evictionPeriod, and when the kernel reports that memory is short.
type evictor struct {
	a       *Agent
	wake    chan struct{}
	left    chan int64             // bytes of memory until the next threshold, as last seen
	evicted *prometheus.CounterVec // by signal
	// preempted counts who had to make room, by the resource that was short.
	preempted *prometheus.CounterVec

	// What follows belongs to run's goroutine.
	tracker eviction.Tracker
	walk    time.Time // not before then are folders walked again

	mu       sync.RWMutex // guards what follows
	pressure []corev1.NodeConditionType
}

const (
	evictionPeriod = 10 * time.Second
	// hardGrace is what a pod gets that goes at once, and cleanUpTime how long the
	// next one waits for it to be gone (upstream's both).
	hardGrace   = time.Second
	cleanUpTime = 30 * time.Second
	// Walks through folders may take half a percent of the time, but come at least
	// every walkMost.
	walkShare = 200
	walkMost  = 30 * time.Second
)

func newEvictor(a *Agent) (*evictor, error) {
	e := &evictor{a: a, wake: make(chan struct{}, 1), left: make(chan int64, 1), evicted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_evictions", Help: "Pods evicted, by signal.",
	}, []string{"eviction_signal"}), preempted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_preemptions", Help: "Times that pods had to make room for a critical one, by the resource that was short.",
	}, []string{"preemption_signal"})}
	return e, errors.Join(a.Metrics.Register(e.evicted), a.Metrics.Register(e.preempted))
}

// run looks after the node until ctx ends.
func (e *evictor) run(ctx context.Context) {
	ticker := e.a.Clock.NewTicker(evictionPeriod)
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

// watch looks at once when the kernel says that memory is short: because somebody
// waits for some, or because a threshold is passed. It may be able to tell one, both
// or neither.
func (e *evictor) watch(ctx context.Context) {
	nobody := func() error { return errors.New("not watched") }
	pressure, usage := nobody, nobody
	if watch := e.a.WatchMemory; watch != nil {
		pressure = func() error { return watch(ctx, e.poke) }
	}
	if watch := e.a.WatchUsage; watch != nil {
		usage = func() error { return watch(ctx, e.left, e.poke) }
	}
	var other sync.WaitGroup
	var err error
	other.Go(func() { err = usage() })
	first := pressure()
	if other.Wait(); first != nil && err != nil && ctx.Err() == nil {
		e.a.log.Info("the kernel does not tell when memory is short: it is looked at every 10 s only", zap.Errors("why", []error{first, err}))
	}
}

// expect tells the kernel how far the next threshold of memory is.
func (e *evictor) expect(left int64) {
	select {
	case <-e.left: // nobody has taken the last one
	default:
	}
	select {
	case e.left <- left:
	default:
	}
}

// poke has the signals looked at now.
func (e *evictor) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// look reads the signals; due are the thresholds because of which pods must go.
func (e *evictor) look() (due []eviction.Met) {
	seen := e.a.Signals()
	due, pressure := e.tracker.Update(e.a.cfg.Eviction, seen, e.a.Clock.Now())
	e.expect(e.a.cfg.Eviction.Left(seen))
	e.mu.Lock()
	changed := !slices.Equal(e.pressure, pressure)
	e.pressure = pressure
	e.mu.Unlock()
	if changed {
		e.a.log.Info("pressure on the node changed", zap.Any("conditions", pressure))
		e.a.node.Poke()
	}
	return due
}

// under are the conditions the node is in.
func (e *evictor) under() []corev1.NodeConditionType {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.pressure
}

// pass ends at most one pod for want of something, and those beyond their limits
// of disk; again says that one went and that the signals may differ now.
func (e *evictor) pass(ctx context.Context) (again bool) {
	due := e.look()
	if !e.a.knowsPods() {
		return false
	}
	if gone := e.overLimits(ctx); len(gone) > 0 {
		e.await(ctx, gone, cleanUpTime)
		return true
	}
	if len(due) == 0 {
		return false
	}
	met := due[0]
	e.a.log.Warn("the node is low on a resource", zap.String("signal", string(met.Signal)), zap.Int64("free", met.Amount.Free), zap.Int64("total", met.Amount.Total))
	e.a.node.Event(corev1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim %s", met.Signal.Resource())
	if met.Signal.OnDisk() {
		e.reclaim(ctx)
		if due = e.look(); !slices.ContainsFunc(due, func(m eviction.Met) bool { return m.Signal.OnDisk() }) {
			return len(due) > 0
		}
		met = due[0]
	}
	w := e.choose(ctx, met)
	if w == nil {
		e.a.log.Warn("no pod can be evicted", zap.String("signal", string(met.Signal)))
		return false
	}
	e.await(ctx, []*worker{w}, cleanUpTime)
	return true
}

// reclaim removes what nobody needs.
func (e *evictor) reclaim(ctx context.Context) {
	if err := e.a.DeleteAllUnusedContainers(ctx); err != nil {
		e.a.log.Warn("dead containers not removed for space", zap.Error(err))
	}
	if err := e.a.DeleteUnusedImages(ctx); err != nil {
		e.a.log.Warn("unused images not removed for space", zap.Error(err))
	}
}

// choose evicts the first pod in line.
func (e *evictor) choose(ctx context.Context, met eviction.Met) *worker {
	workers, pods := e.evictable()
	usage := e.usage(ctx, met.Signal)
	eviction.Rank(pods, usage, met.Signal)
	for _, pod := range pods {
		w := workers[pod.UID]
		if !e.evict(w, eviction.Because(met, pod, usage[pod.UID]), e.grace(met, pod)) {
			continue
		}
		e.evicted.WithLabelValues(string(met.Signal)).Inc()
		return w
	}
	return nil
}

func (e *evictor) grace(met eviction.Met, pod *corev1.Pod) time.Duration {
	if !met.Soft {
		return hardGrace
	}
	return min(e.a.cfg.Eviction.MaxGrace, time.Duration(graceOf(pod))*time.Second)
}

// evictable are the pods that use something and may go.
func (e *evictor) evictable() (map[types.UID]*worker, []*corev1.Pod) {
	workers := e.a.all()
	var pods []*corev1.Pod
	for _, w := range workers {
		pod := w.current.Load()
		if !status.Finished(pod.Status.Phase) && !w.quiet.Load() && !e.critical(pod) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int { return x.CreationTimestamp.Compare(y.CreationTimestamp.Time) })
	return workers, pods
}

// critical pods never go.
func (e *evictor) critical(pod *corev1.Pod) bool {
	return eviction.Critical(pod, e.a.cfg.Eviction.CriticalAnnotation) || e.a.isStatic(pod)
}

// evict ends a pod; false when it is ending already.
func (e *evictor) evict(w *worker, why *status.Failure, grace time.Duration) bool {
	if w == nil || w.quiet.Load() {
		return false
	}
	pod := w.current.Load()
	e.a.log.Warn("evicting a pod", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.String("reason", why.Reason), zap.String("message", why.Message))
	e.a.event(pod, "", corev1.EventTypeWarning, why.Reason, "%s", why.Message)
	w.update(func(in *inbox) {
		in.refused, in.hurry = why, &grace
		if in.interrupt != nil {
			in.interrupt()
		}
	})
	return true
}

// await waits until nothing of the pods runs any more, though not for ever.
func (e *evictor) await(ctx context.Context, pods []*worker, limit time.Duration) {
	timer := e.a.Clock.NewTimer(limit)
	defer timer.Stop()
	for _, w := range pods {
		for !w.over.Load() {
			changed := w.changes()
			if w.over.Load() {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-timer.C():
				e.a.log.Warn("an evicted pod takes long to end", zap.String("uid", string(w.uid)))
				return
			case <-w.done:
			case <-changed:
			}
		}
	}
}

// overLimits evicts the pods that take more disk than they may.
func (e *evictor) overLimits(ctx context.Context) (gone []*worker) {
	workers, pods := e.evictable()
	limited := map[types.UID]bool{}
	for _, pod := range pods {
		if eviction.Limited(pod) {
			limited[pod.UID] = true
		}
	}
	start := e.a.Clock.Now()
	if len(limited) == 0 || start.Before(e.walk) {
		return nil
	}
	disks, err := e.a.stats.Disks(ctx, func(p *corev1.Pod) bool { return limited[p.UID] })
	if err != nil {
		e.a.log.Warn("the disk use of pods is not known", zap.Error(err))
		return nil
	}
	e.walk = start.Add(min(walkShare*e.a.Clock.Since(start), walkMost))
	for _, pod := range pods {
		if f := eviction.Exceeded(pod, eviction.Disk(disks[pod.UID])); f != nil && e.evict(workers[pod.UID], f, hardGrace) {
			e.evicted.WithLabelValues("ephemeral-storage").Inc()
			gone = append(gone, workers[pod.UID])
		}
	}
	return gone
}

// usage is what the pods use of what the signal is about; empty where the runtime
// has no statistics.
func (e *evictor) usage(ctx context.Context, signal eviction.Signal) map[types.UID]eviction.Usage {
	summary, err := e.a.stats.Summary(ctx, !signal.OnDisk())
	if err != nil {
		e.a.log.Warn("the use of pods is not known", zap.Error(err))
		return nil
	}
	out := map[types.UID]eviction.Usage{}
	for i := range summary.Pods {
		p := &summary.Pods[i]
		out[types.UID(p.PodRef.UID)] = usageOf(p)
	}
	return out
}

func usageOf(p *statsapi.PodStats) eviction.Usage {
	u := eviction.Usage{Pod: map[corev1.ResourceName]int64{}, Containers: map[string]map[corev1.ResourceName]int64{}}
	u.Pod[corev1.ResourceMemory] = int64(*p.Memory.WorkingSetBytes)
	if fs := p.EphemeralStorage; fs != nil {
		u.Pod[corev1.ResourceEphemeralStorage], u.Pod[eviction.NodeFsInodes.Resource()] = int64(*fs.UsedBytes), int64(*fs.InodesUsed)
	}
	if p.ProcessStats != nil {
		u.Pod[eviction.PID.Resource()] = int64(*p.ProcessStats.ProcessCount)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		used := map[corev1.ResourceName]int64{corev1.ResourceMemory: int64(*c.Memory.WorkingSetBytes)}
		if c.Rootfs != nil && c.Logs != nil {
			used[corev1.ResourceEphemeralStorage] = int64(*c.Rootfs.UsedBytes + *c.Logs.UsedBytes)
		}
		u.Containers[c.Name] = used
	}
	return u
}

// admit keeps pods out that the node would have to evict next. One that ran before
// this agent started was let in then.
func (e *evictor) admit(pod *corev1.Pod, critical bool) *status.Failure {
	if pod.Status.StartTime != nil {
		return nil
	}
	f := eviction.Admit(pod, critical, e.under())
	if f == nil {
		return nil
	}
	return rejected(f.Reason, "%s", f.Message)
}

// machine reads the signals; one that cannot be read is missing.
func (a *Agent) machine() eviction.Observations {
	data, images := a.cfg.DataDir, a.imageRoot()
	out := eviction.Observations{}
	for signal, read := range map[eviction.Signal]func() (host.Amount, error){
		eviction.Memory:        host.Memory,
		eviction.PID:           host.PIDs,
		eviction.NodeFs:        func() (host.Amount, error) { return host.Disk(data) },
		eviction.NodeFsInodes:  func() (host.Amount, error) { return host.Inodes(data) },
		eviction.ImageFs:       func() (host.Amount, error) { return host.Disk(images) },
		eviction.ImageFsInodes: func() (host.Amount, error) { return host.Inodes(images) },
	} {
		if amount, err := read(); err == nil && amount.Total > 0 {
			out[signal] = eviction.Amount(amount)
		}
	}
	return out
}
