// Package statefulset maintains the pods of each StatefulSet, with stable ordinals, names and volume claims.
//
//   - syncstate.go: the state of a StatefulSet and its pods, by ordinal, during one sync.
//   - step.go: one step of creation, scaling and update, ordered or parallel.
//   - pod.go: the identity of a pod.
//   - claims.go: volume claims, and the owners with which they are deleted.
//   - status.go: the counts, and the end of a rollout.
package statefulset

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/revisions"
)

// Name of the controller.
const Name = "statefulset"

// Component is the source of its events.
const Component = "statefulset-controller"

const (
	kind      = "StatefulSet"
	hashLabel = "controller.kubernetes.io/hash" // of revisions (upstream ControllerRevisionHashLabel)
)

// Config of the controller.
type Config struct {
	Workers int // --concurrent-statefulset-syncs; 0 means upstream's 5
}

// Controller runs the pods of StatefulSets.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, Workload: revisions.NewWorkload(c.deps, revisions.Kind[*appsv1.StatefulSet]{
		Name: kind, Resource: client.StatefulSets, HashLabel: hashLabel, Selector: selectorOf,
		FailureGeneration: (*appsv1.StatefulSet).GetGeneration,
	})}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: append(r.Sources(),
			follow.Source[follow.Key]{Selector: client.Selector{Resource: client.PersistentVolumeClaims}, Keys: r.onClaim}),
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	*revisions.Workload[*appsv1.StatefulSet]
}

// reconcile syncs a StatefulSet: its revision, one step with its pods, then its status. It leaves a StatefulSet that
// is being deleted to the garbage collector.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	set, selector, ok, err := r.Begin(ctx, key)
	if err != nil || !ok {
		return 0, err
	}
	history, err := r.Keeper.Sync(ctx, revisions.Owner{
		Object: set, Selector: selector, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount,
	}, r.Revisions.OfOrOrphan(set))
	if err != nil {
		return 0, err
	}
	member := func(pods []*corev1.Pod) []*corev1.Pod {
		return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return ordinalOf(set, p) < 0 })
	}
	mine, err := r.Adopter.Of(ctx, set, selector, member(r.Pods.OfOrOrphan(set)))
	if err != nil {
		return 0, err
	}
	st := newSyncState(set, history, mine, r.deps.Clock.Now())
	if !st.settled() && !follow.Current(ctx) {
		// There may be something to do, and the index may be outdated, because the watches of different kinds are not
		// ordered. So the pods come from the API.
		stored, err := client.List[*corev1.Pod](ctx, r.deps.Client,
			client.Selector{Namespace: set.Namespace, Labels: selector})
		if err != nil {
			return 0, err
		}
		if mine, err = r.Adopter.Of(ctx, set, selector, member(stored)); err != nil {
			return 0, err
		}
		st = newSyncState(set, history, mine, st.now)
	}
	step := r.ordered
	if set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement {
		step = r.parallel
	}
	err = step(ctx, st) // towards the desired state
	return st.next(), errors.Join(err, r.report(ctx, st), r.trim(ctx, st))
}

// trim deletes old revisions, except those that pods or the status refer to.
func (r *run) trim(ctx context.Context, st *syncState) error {
	keep := 10 // the API server's default
	if limit := st.set.Spec.RevisionHistoryLimit; limit != nil {
		keep = int(*limit)
	}
	used := map[string]bool{st.current.Name: true, st.update.Name: true}
	for _, p := range st.pods() {
		used[revisionOf(p)] = true
	}
	return r.Keeper.Trim(ctx, st.old, keep, func(rev *appsv1.ControllerRevision) bool { return used[rev.Name] })
}
