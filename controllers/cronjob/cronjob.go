// Package cronjob creates the Jobs of each CronJob on its schedule.
//
//   - schedule.go: computes the scheduled times, and which of them is due; pure functions.
//   - active.go: finds the active and finished Jobs, and applies the history limits.
//   - start.go: creates the Job of a scheduled time.
//
// Between two scheduled times a CronJob causes no work, unless the clock is set or the machine resumes (follow.Jumps).
package cronjob

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
)

// Name of the controller.
const Name = "cronjob"

// Component is the source of its events.
const Component = "cronjob-controller"

const kind = "CronJob"

// Config of the controller.
type Config struct {
	Workers int // --concurrent-cron-job-syncs; 0 means upstream's 5
}

// Controller starts the Jobs of CronJobs.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
	skew   prometheus.Histogram
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metric.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	skew, err := follow.Register(deps.Metrics, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "cronjob_controller_job_creation_skew_duration_seconds",
		Help:    "Time between the scheduled time and the creation of the Job.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	}))
	return &Controller{deps: deps, events: events, cfg: cfg, skew: skew}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, scheduleSince: map[types.UID]time.Time{}, jobs: owned.NewIndex[*batchv1.Job]()}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.CronJobs}, Keys: follow.Plain(r.onCronJob)},
			{Selector: client.Selector{Resource: client.Jobs}, Keys: r.onJob},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	jobs *owned.Index[*batchv1.Job]

	mu sync.Mutex // guards scheduleSince

	// scheduleSince is when a CronJob got its current schedule, or when the clock was set back by more than smallStep.
	scheduleSince map[types.UID]time.Time
}

// onCronJob wakes the CronJob.
func (r *run) onCronJob(old, new client.Object) []follow.Key {
	was, _ := old.(*batchv1.CronJob)
	is, _ := new.(*batchv1.CronJob)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case is == nil:
		delete(r.scheduleSince, was.UID)
	case was != nil && (was.Spec.Schedule != is.Spec.Schedule ||
		!equality.Semantic.DeepEqual(was.Spec.TimeZone, is.Spec.TimeZone)):
		r.scheduleSince[is.UID] = r.deps.Clock.Now()
	}
	return follow.OnAny(old, new)
}

// onJob updates the index, and wakes the CronJob whose Job appears, ends, or is deleted.
func (r *run) onJob(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	r.jobs.Change(old, new)
	was, _ := old.(*batchv1.Job)
	is, _ := new.(*batchv1.Job)
	if was != nil && is != nil && ended(was) == ended(is) && controllerOf(was) == controllerOf(is) {
		return nil, nil
	}
	none := func(*batchv1.CronJob) *metav1.LabelSelector { return nil } // a CronJob adopts no Jobs
	return owned.Changed(ctx, r.deps.Client, kind, none, old, new)
}

func controllerOf(job *batchv1.Job) types.UID {
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil {
		return owner.UID
	}
	return ""
}

// syncState is the state of a CronJob during one sync.
type syncState struct {
	stored *batchv1.CronJob // as read; shared
	cj     *batchv1.CronJob // copy whose status the sync changes
	jobs   []*batchv1.Job   // controlled by the CronJob
	now    time.Time
	since  time.Time // earlier scheduled times are ignored
}

// reconcile syncs a CronJob: its active Jobs, the Job that is due, and its history. It returns the time until the next
// scheduled time.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	cj, err := client.Get[*batchv1.CronJob](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := r.jobs.Present(ctx, r.deps.Client, cj)
	if err != nil {
		return 0, err
	}
	st := &syncState{stored: cj, cj: cj.DeepCopy(), now: r.deps.Clock.Now()}
	for _, job := range all {
		if metav1.IsControlledBy(job, cj) {
			st.jobs = append(st.jobs, job)
		}
	}
	r.mu.Lock()
	begun := beginning(cj, r.scheduleSince[cj.UID], st.now)
	if !begun.IsZero() {
		r.scheduleSince[cj.UID] = begun
	}
	r.mu.Unlock()
	st.since = earliest(cj, begun, st.now)
	r.updateActive(st)
	again, startErr := r.startDue(ctx, st)
	if err := r.write(ctx, st); err != nil {
		return 0, err
	}
	if startErr != nil {
		return 0, startErr
	}
	return again, r.cleanUp(ctx, st)
}

// write stores the status if it has changed. It conflicts if the CronJob was changed since the sync began.
func (r *run) write(ctx context.Context, st *syncState) error {
	if equality.Semantic.DeepEqual(st.cj.Status, st.stored.Status) {
		return nil
	}
	_, err := client.Update(ctx, r.deps.Client, st.stored, "status", func(cur *batchv1.CronJob) error {
		cur.UID, cur.ResourceVersion = st.stored.UID, st.stored.ResourceVersion
		cur.Status = *st.cj.Status.DeepCopy()
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// normal and warn record Events about the CronJob.
func (r *run) normal(st *syncState, reason, format string, args ...any) {
	r.events.Eventf(st.stored, corev1.EventTypeNormal, reason, format, args...)
}

func (r *run) warn(st *syncState, reason, format string, args ...any) {
	r.events.Eventf(st.stored, corev1.EventTypeWarning, reason, format, args...)
}
