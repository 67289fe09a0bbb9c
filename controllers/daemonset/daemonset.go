// Package daemonset keeps one pod of each DaemonSet on every node that the DaemonSet selects.
//
//   - nodes.go: which nodes a DaemonSet selects, and how its pods are bound to them.
//   - syncstate.go: the state of a DaemonSet, its nodes and pods during one sync.
//   - manage.go: creates missing pods, and deletes surplus and finished ones.
//   - rolling.go: the steps of a rolling update.
//   - status.go: the counts.
package daemonset

import (
	"cmp"
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
	"monopod/controllers/revisions"
)

// Name of the controller.
const Name = "daemonset"

// Component is the source of its events.
const Component = "daemonset-controller"

const (
	kind     = "DaemonSet"
	burst    = 250 // maximum number of pods created or deleted in one sync (upstream BurstReplicas)
	parallel = 50  // concurrent requests; upstream sends all at once
)

// Config of the controller.
type Config struct {
	Workers int // --concurrent-daemonset-syncs; 0 means upstream's 2
}

// Controller runs the pods of DaemonSets.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	cfg.Workers = cmp.Or(cfg.Workers, 2)
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, control: owned.Pods{Client: c.deps.Client, Events: c.events},
		Workload: revisions.NewWorkload(c.deps, revisions.Kind[*appsv1.DaemonSet]{
			Name: kind, Resource: client.DaemonSets, HashLabel: appsv1.DefaultDaemonSetUniqueLabelKey, Selector: selectorOf,
			FailureGeneration: func(ds *appsv1.DaemonSet) int64 { return ds.Status.ObservedGeneration },
		})}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: append(r.Sources(),
			follow.Source[follow.Key]{Selector: client.Selector{Resource: client.Nodes}, Keys: r.onNode}),
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	*revisions.Workload[*appsv1.DaemonSet]
	control owned.Pods
}

// reconcile syncs a DaemonSet: its revision, its pods, then its status. It leaves a DaemonSet that is being deleted
// to the garbage collector, which may have deleted its revisions already.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	ds, selector, ok, err := r.Begin(ctx, key)
	if err != nil || !ok {
		return 0, err
	}
	nodes, err := client.List[*corev1.Node](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	history, err := r.Keeper.Sync(ctx, revisions.Owner{
		Object: ds, Selector: selector, Template: &ds.Spec.Template, Collisions: ds.Status.CollisionCount,
	}, r.Revisions.OfOrOrphan(ds))
	if err != nil {
		return 0, err
	}
	mine, err := r.Adopter.Of(ctx, ds, selector, r.Pods.OfOrOrphan(ds))
	if err != nil {
		return 0, err
	}
	st := newSyncState(ds, history, nodes, mine, r.deps.Clock.Now())
	again, err := r.work(ctx, st, selector)
	return earliest(again, st.nextAvailable()), errors.Join(err, r.report(ctx, st))
}

// work creates and deletes pods. If the index may lack pods that are older than the DaemonSet, because the watches of
// different kinds are not ordered, it first lists the pods from the API.
func (r *run) work(ctx context.Context, st *syncState, selector labels.Selector) (time.Duration, error) {
	if st.plan().empty() {
		return 0, r.trim(ctx, st)
	}
	if !follow.Current(ctx) {
		stored, err := client.List[*corev1.Pod](ctx, r.deps.Client,
			client.Selector{Namespace: st.ds.Namespace, Labels: selector})
		if err != nil {
			return 0, err
		}
		mine, err := r.Adopter.Of(ctx, st.ds, selector, stored)
		if err != nil {
			return 0, err
		}
		st.setPods(mine)
	}
	again, err := r.apply(ctx, st, st.plan())
	return again, errors.Join(err, r.trim(ctx, st))
}

// trim deletes old revisions. Revisions of existing pods are kept and not counted.
func (r *run) trim(ctx context.Context, st *syncState) error {
	keep := 10 // the API server's default
	if limit := st.ds.Spec.RevisionHistoryLimit; limit != nil {
		keep = int(*limit)
	}
	used := map[string]bool{} // hashes of the existing pods
	for _, on := range st.pods {
		for _, p := range on {
			used[p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]] = true
		}
	}
	live := func(rev *appsv1.ControllerRevision) bool {
		return used[rev.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]]
	}
	for _, rev := range st.history.Others {
		if live(rev) {
			keep--
		}
	}
	return r.Keeper.Trim(ctx, st.history.Others, max(0, keep), live)
}

// report writes the status if it has changed.
func (r *run) report(ctx context.Context, st *syncState) error {
	next := st.status()
	if equality.Semantic.DeepEqual(next, st.ds.Status) {
		return nil
	}
	return owned.UpdateStatus(ctx, r.deps.Client, st.ds, func(cur *appsv1.DaemonSet) {
		next.ObservedGeneration = max(next.ObservedGeneration, cur.Status.ObservedGeneration)
		cur.Status = next
	})
}

// earliest returns the shorter of two delays, where 0 means none.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
