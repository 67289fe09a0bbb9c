// Package podgc deletes pods that no other component deletes: finished pods beyond a threshold, the pods of nodes that
// no longer exist or are out of service, and terminating pods that have no node.
package podgc

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
)

// Name of the controller.
const Name = "podgc"

const (
	period     = 20 * time.Second // between passes (upstream gcCheckPeriod)
	quarantine = 40 * time.Second // time for which a node must be missing before its pods are orphaned
	parallel   = 10               // concurrent deletions; upstream has no limit
)

// The reasons for deleting a pod are label values of the metrics.
const (
	reasonTerminated   = "terminated"
	reasonOutOfService = "out-of-service"
	reasonOrphaned     = "orphaned"
	reasonUnscheduled  = "unscheduled"
)

// Config of the controller.
type Config struct {
	// Threshold (--terminated-pod-gc-threshold) is the number of finished pods above which the oldest are deleted; 0 or
	// less: never. Upstream's default is 12500.
	Threshold int
}

// Controller checks the pods in memory every 20 s.
type Controller struct {
	deps            follow.Deps
	cfg             Config
	deleted, failed *prometheus.CounterVec
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, cfg Config) (*Controller, error) {
	labels := []string{"namespace", "reason"}
	c := &Controller{deps: deps, cfg: cfg,
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_gc_collector_force_delete_pods_total",
			Help: "Pods deleted by podgc."}, labels),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_gc_collector_force_delete_pod_errors_total",
			Help: "Pods that podgc could not delete."}, labels),
	}
	for _, m := range []prometheus.Collector{c.deleted, c.failed} {
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
	s := &state{missing: map[string]time.Time{}, lastErrors: map[types.UID]string{}}
	return follow.New(c.deps, follow.Config[string]{
		Name:  Name,
		Start: []string{"pass"},
		Reconcile: func(ctx context.Context, _ string) (time.Duration, error) {
			return period, c.pass(ctx, s)
		},
	}).Run(ctx)
}

// state is kept between passes.
type state struct {
	missing    map[string]time.Time // names of missing nodes, and since when
	lastErrors map[types.UID]string // last error that was logged for each pod
}

// pass processes all pods once.
func (c *Controller) pass(ctx context.Context, s *state) error {
	pods, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	list, err := client.List[*corev1.Node](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	nodes := make(map[string]*corev1.Node, len(list))
	for _, n := range list {
		nodes[n.Name] = n
	}
	tried := map[types.UID]bool{}
	collect := func(reason string, victims []*corev1.Pod) {
		c.collect(ctx, s, tried, reason, victims)
	}
	collect(reasonTerminated, excess(pods, c.cfg.Threshold))
	collect(reasonOutOfService, outOfService(pods, nodes))
	orphans, err := c.orphans(ctx, s, pods, nodes)
	if err != nil {
		return err
	}
	collect(reasonOrphaned, orphans)
	collect(reasonUnscheduled, unscheduled(pods))
	s.forget(pods)
	return nil
}

// forget removes the state of pods that no longer exist.
func (s *state) forget(pods []*corev1.Pod) {
	if len(s.lastErrors) == 0 {
		return
	}
	alive := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		alive[p.UID] = true
	}
	for uid := range s.lastErrors {
		if !alive[uid] {
			delete(s.lastErrors, uid)
		}
	}
}

// outcome is the result of one pod's deletion.
type outcome struct {
	pod *corev1.Pod
	err error
}

// collect deletes victims that were not tried in this pass, and waits for all. It skips finished pods that only
// finalizers keep.
func (c *Controller) collect(ctx context.Context, s *state, tried map[types.UID]bool, reason string,
	victims []*corev1.Pod) {
	var todo []*outcome
	for _, pod := range victims {
		if !tried[pod.UID] && (!gone(pod) || !podstate.Finished(pod)) {
			tried[pod.UID] = true
			todo = append(todo, &outcome{pod: pod})
		}
	}
	follow.Each(parallel, todo, func(o *outcome) error {
		o.err = c.remove(ctx, o.pod, reason)
		return nil
	})
	for _, o := range todo {
		if o.err == nil {
			c.deleted.WithLabelValues(o.pod.Namespace, reason).Inc()
			delete(s.lastErrors, o.pod.UID)
			c.deps.Log.Info("pod deleted", zap.String("controller", Name), zap.String("namespace", o.pod.Namespace),
				zap.String("pod", o.pod.Name), zap.String("uid", string(o.pod.UID)), zap.String("reason", reason))
			continue
		}
		c.failed.WithLabelValues(o.pod.Namespace, reason).Inc()
		text := fmt.Sprintf("%s: %v", reason, o.err)
		if s.lastErrors[o.pod.UID] == text {
			continue // an error is logged once for each pod
		}
		s.lastErrors[o.pod.UID] = text
		c.deps.Log.Warn("failed to delete a pod", zap.String("controller", Name),
			zap.String("namespace", o.pod.Namespace), zap.String("pod", o.pod.Name),
			zap.String("uid", string(o.pod.UID)), zap.String("reason", reason), zap.Error(o.err))
	}
}
