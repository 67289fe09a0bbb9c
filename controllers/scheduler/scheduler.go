// Package scheduler binds pods to nodes: to the ready node on which they fit that has the most free resources.
//
//   - cache: every node and the requests of its pods, including bindings in progress.
//   - filter: why a pod cannot run on a node.
//   - score: which of the fitting nodes is best.
//
// Decisions are made one at a time, bindings are written concurrently.
package scheduler

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/client"
	"monopod/apiserver/client/record"
	"monopod/apiserver/follow"
	"monopod/controllers/nodestate"
	"monopod/controllers/podstate"
)

// Name of the controller.
const Name = "scheduler"

// Component is the source of its events and its name in spec.schedulerName.
const Component = corev1.DefaultSchedulerName

// Config of the controller.
type Config struct {
	Workers int // concurrent bindings; 0 means 8
}

// Controller binds pods to nodes.
type Controller struct {
	deps     follow.Deps
	events   record.Eventer
	cfg      Config
	attempts *prometheus.CounterVec
	pending  *prometheus.GaugeVec
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 8
	}
	c := &Controller{deps: deps, events: events, cfg: cfg,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scheduler_schedule_attempts_total",
			Help: "Number of attempts to schedule a pod, by result: scheduled, unschedulable or error."}, []string{"profile", "result"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "scheduler_pending_pods",
			Help: "Pods that wait for a node."}, []string{"queue"}),
	}
	for _, m := range []prometheus.Collector{c.attempts, c.pending} {
		if err := deps.Metrics.Registerer.Register(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, cache: newCache(), waiting: map[follow.Key]*corev1.Pod{},
		claiming: map[follow.Key]*corev1.Pod{}, reserved: map[follow.Key]reservation{}}
	r.loop = follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(r.onNode)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(r.onPod)},
			{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: follow.Plain(r.onClaim)},
			{Selector: client.Selector{Resource: client.PersistentVolumes}, Keys: follow.Plain(r.onStorage)},
			{Selector: client.Selector{Resource: client.StorageClasses}, Keys: follow.Plain(r.onStorage)},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is one Run of the controller, with its state.
type run struct {
	*Controller
	loop *follow.Loop[follow.Key]

	// mu guards the fields below. It is held for a whole decision, so that a change of the cache is either seen
	// by the decision or wakes the pod after it.
	mu      sync.Mutex
	cache   *cache
	waiting map[follow.Key]*corev1.Pod // unschedulable; retried when that may change

	claiming map[follow.Key]*corev1.Pod // unscheduled, with claims
	reserved map[follow.Key]reservation // reserved, waiting for their claims
}

// onNode wakes the waiting pods when a node may fit more pods.
func (r *run) onNode(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Node)
	is, _ := new.(*corev1.Node)
	r.mu.Lock()
	defer r.mu.Unlock()
	if is == nil {
		r.cache.dropNode(was.Name)
		return r.wake() // their message changes
	}
	r.cache.setNode(is)
	if was != nil && sameForPods(was, is) {
		return nil
	}
	return r.wake()
}

// sameForPods reports whether everything that filters read is equal, as after a heartbeat.
func sameForPods(a, b *corev1.Node) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable) &&
		nodestate.Ready(a) == nodestate.Ready(b) && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}

// onPod updates the cache; a pod to schedule wakes itself, one that frees resources wakes waiting pods.
func (r *run) onPod(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if is == nil {
		delete(r.waiting, follow.KeyOf(was))
		r.noteClaims(follow.KeyOf(was), nil)
		r.countWaiting()
		if r.cache.remove(was.UID) {
			return r.wake()
		}
		return nil
	}
	r.noteClaims(follow.KeyOf(is), is)
	arrived := !r.cache.has(is.UID) || (was != nil && was.Spec.NodeName == "")
	freed := r.cache.observe(is)
	var keys []follow.Key
	if wanted(is) && (was == nil || !wanted(was) || !sameForNodes(was, is)) {
		keys = append(keys, follow.KeyOf(is))
	}
	switch {
	case freed:
		keys = append(keys, r.wake()...)
	case arrived && is.Spec.NodeName != "":
		keys = append(keys, r.wakeAttracted()...)
	}
	return keys
}

// sameForNodes reports whether everything that filters read is equal, as when only the status changed.
func sameForNodes(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// wanted reports whether this scheduler schedules the pod.
func wanted(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !podstate.Finished(p) &&
		(p.Spec.SchedulerName == "" || p.Spec.SchedulerName == Component)
}

// reconcile chooses a node for a pod and binds it, or reports why there is none.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || (err == nil && !wanted(pod)) {
		r.forgetWaiting(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		r.forgetWaiting(key)
		return 0, r.gated(ctx, pod)
	}
	vs, why, err := r.volumesOf(ctx, pod)
	if err != nil {
		return 0, err
	}
	if why != "" {
		return 0, r.unschedulable(ctx, pod, r.park(key, pod, why))
	}
	node, why, busy := r.decide(key, pod, vs)
	switch {
	case busy:
		return 0, nil
	case node == "":
		return 0, r.unschedulable(ctx, pod, why)
	case vs != nil && len(vs.open) > 0:
		return r.reserve(ctx, key, pod, vs, node)
	}
	r.dropPlace(key)
	return 0, r.bind(ctx, pod, node)
}

func (r *run) forgetWaiting(key follow.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, key)
	r.countWaiting()
}

// decide chooses a node and assumes the pod there, or makes the pod wait and returns why. busy: the pod is
// already being bound.
func (r *run) decide(key follow.Key, pod *corev1.Pod, vs *volumes) (node, why string, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.countWaiting()
	if at, ok := r.reserved[key]; ok && at.uid == pod.UID && r.cache.has(pod.UID) {
		return at.node, "", false
	}
	if r.cache.has(pod.UID) {
		return "", "", true
	}
	var more []filter
	if vs != nil {
		more = append(more, vs.filter)
	}
	node, why = choose(r.cache, pod, more...)
	if node == "" {
		r.waiting[key] = pod
		return "", why, false
	}
	delete(r.waiting, key)
	r.cache.assume(pod, node)
	return node, "", false
}

// bind writes the binding. A pod that is gone or already bound needs none.
func (r *run) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	_, err := client.Update(ctx, r.deps.Client, pod, "binding", func(p *corev1.Pod) error {
		p.UID = pod.UID // a pod of the same name conflicts
		if p.Spec.NodeName != "" {
			return apierrors.NewConflict(client.Pods.GroupResource(), p.Name, errBound)
		}
		p.Spec.NodeName = node
		return nil
	})
	if err == nil {
		r.attempts.WithLabelValues(Component, "scheduled").Inc()
		r.events.Eventf(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
		return nil
	}
	r.giveUp(pod)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	r.attempts.WithLabelValues(Component, "error").Inc()
	r.deps.Log.Debug("binding failed", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.String("node", node))
	return err
}

// giveUp removes an assumed pod and wakes pods that wait for resources.
func (r *run) giveUp(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache.forget(pod.UID)
	r.loop.Add(r.wake()...)
}
