// Package deployment rolls out the pod template of each Deployment: it creates a ReplicaSet for every template and
// moves replicas from the old ReplicaSets to the new one.
//
//   - rollout.go: the state of a Deployment and its ReplicaSets during one sync.
//   - strategy.go: the steps of a rolling update, of Recreate, and of scaling.
//   - sizes.go: the desired replicas of each ReplicaSet; pure functions.
//   - create.go: the new ReplicaSet, its hash, and name collisions.
//   - revision.go: the annotations that kubectl rollout reads.
//   - rollback.go: the annotation with which old clients undo a rollout.
//   - status.go: counts, conditions, and the progress deadline.
package deployment

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
)

// Name of the controller.
const Name = "deployment"

// Component is the source of its events.
const Component = "deployment-controller"

const kind = "Deployment"

// Config of the controller.
type Config struct {
	Workers int // --concurrent-deployment-syncs; 0 means upstream's 5
}

// Controller rolls out Deployments.
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
	r := &run{Controller: c, sets: owned.NewIndex[*appsv1.ReplicaSet](), adopter: owned.Adopter[*appsv1.ReplicaSet]{
		Client: c.deps.Client, Kind: appsv1.SchemeGroupVersion.WithKind(kind),
		Adoptive: func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp == nil },
	}}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Deployments}, Keys: follow.Plain(follow.OnAny)},
			{Selector: client.Selector{Resource: client.ReplicaSets},
				Keys: owned.Keys(c.deps.Client, r.sets, kind,
					func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector })},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	adopter owned.Adopter[*appsv1.ReplicaSet]
	sets    *owned.Index[*appsv1.ReplicaSet]
}

// reconcile makes one step of a Deployment's rollout and then updates its status. The ReplicaSets report the result
// of the step in their statuses, which wakes the Deployment for the next step.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	d, err := client.Get[*appsv1.Deployment](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return 0, nil // the API rejects such a selector; a retry would not help
	}
	sets, err := r.adopter.Of(ctx, d, selector, r.sets.OfOrOrphan(d))
	if err != nil {
		return 0, err
	}
	ro := newRollout(d, sets)
	err = r.step(ctx, ro)
	now := r.deps.Clock.Now()
	ro.summarize(err == nil && ro.rolls, now)
	return untilDeadline(ro.d, now), errors.Join(err, r.report(ctx, ro))
}

// step moves the ReplicaSets one step towards the desired state.
func (r *run) step(ctx context.Context, ro *rollout) error {
	d := ro.d
	if d.DeletionTimestamp != nil {
		return nil
	}
	ro.notePause(r.deps.Clock.Now())
	if err := r.keepRevision(ctx, ro); err != nil {
		return err
	}
	// Old clients request a rollback with an annotation; revision 0 is the previous one.
	revision, err := strconv.ParseInt(d.Annotations[rollbackAnnotation], 10, 64)
	switch {
	case d.Spec.Paused:
		return errors.Join(r.rescale(ctx, ro), r.cleanUp(ctx, ro))
	case err == nil:
		return r.rollback(ctx, ro, revision)
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return r.recreate(ctx, ro)
	case rescaled(d, ro.active()):
		return r.rescale(ctx, ro)
	}
	return r.roll(ctx, ro)
}

// report writes the status and the revision if they have changed.
func (r *run) report(ctx context.Context, ro *rollout) error {
	if equality.Semantic.DeepEqual(ro.stored.Status, ro.d.Status) &&
		(ro.revision == "" || ro.stored.Annotations[revisionAnnotation] == ro.revision) {
		return nil
	}
	return owned.UpdateStatus(ctx, r.deps.Client, ro.stored, func(cur *appsv1.Deployment) {
		cur.Status = *ro.d.Status.DeepCopy()
		if ro.revision != "" {
			metav1.SetMetaDataAnnotation(&cur.ObjectMeta, revisionAnnotation, ro.revision)
		}
	})
}

// eventf records an event about the Deployment.
func (r *run) eventf(ro *rollout, warning bool, reason, format string, args ...any) {
	typ := corev1.EventTypeNormal
	if warning {
		typ = corev1.EventTypeWarning
	}
	r.events.Eventf(ro.stored, typ, reason, format, args...)
}
