// Package job runs the pods of each Job until enough of them have succeeded or too many have failed, and counts every
// pod once.
//
//   - syncstate.go: the state of a Job and its pods during one sync.
//   - verdict.go: decides whether the Job ends, and why; pure functions.
//   - policy.go: evaluates podFailurePolicy and successPolicy; pure functions.
//   - manage.go: creates and deletes pods.
//   - pods.go: new pods.
//   - backoff.go: the delay before a failed pod is replaced.
//   - track.go: counts pods. A finalizer keeps each pod until it is counted.
package job

import (
	"cmp"
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
)

// Name of the controller.
const Name = "job"

// Component is the source of its events.
const Component = "job-controller"

const kind = "Job"

// Config of the controller.
type Config struct {
	Workers int // --concurrent-job-syncs; 0 means upstream's 5
}

// Controller runs Jobs.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
	counts *metrics
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	counts, err := newMetrics(deps.Metrics)
	return &Controller{deps: deps, events: events, cfg: cfg, counts: counts}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// key identifies a Job, or a pod whose finalizer may no longer be needed.
type key struct {
	follow.Key
	pod bool
}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := newRun(c)
	return follow.New(c.deps, follow.Config[key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[key]{
			{Selector: client.Selector{Resource: client.Jobs}, Keys: follow.Plain(r.onJob)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: r.onPod},
		},
		Reconcile: func(ctx context.Context, k key) (time.Duration, error) {
			if k.pod {
				return 0, r.reconcilePod(ctx, k.Key)
			}
			return r.reconcile(ctx, k.Key)
		},
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	adopter  owned.Adopter[*corev1.Pod]
	control  owned.Pods
	failures *failures
	pods     *owned.Index[*corev1.Pod]
}

func newRun(c *Controller) *run {
	return &run{Controller: c, failures: newFailures(), pods: owned.NewIndex[*corev1.Pod](),
		control: owned.Pods{Client: c.deps.Client, Events: c.events}, adopter: owned.Adopter[*corev1.Pod]{
			Client: c.deps.Client, Kind: batchv1.SchemeGroupVersion.WithKind(kind), Finalizer: batchv1.JobTrackingFinalizer,
			Adoptive: func(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil },
		}}
}

// reconcile syncs a Job: its end, its pods, and its status. The cached pods must be at least as new as the end of the
// previous sync, so that no pod is counted twice.
func (r *run) reconcile(ctx context.Context, k follow.Key) (time.Duration, error) {
	job, err := client.Get[*batchv1.Job](ctx, r.deps.Client, k.Namespace, k.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if finished(job) || foreign(job) {
		r.failures.forget(job.UID)
		return 0, nil
	}
	pods, err := r.podsOf(ctx, job)
	if err != nil {
		return 0, err
	}
	st := newSyncState(job, pods, r.deps.Clock.Now())
	st.backoff = r.failures.next(st)
	st.judge()
	switch {
	case st.end != nil:
		err = r.stop(ctx, st)
	case job.DeletionTimestamp == nil:
		err = r.manage(ctx, st)
		r.settle(st)
	}
	err = errors.Join(err, r.track(ctx, st)) // counts the pods that have finished
	r.counts.synced(st, r.deps.Clock.Since(st.now), err)
	return st.again, err
}

// podsOf adopts and releases pods where necessary, and returns the Job's pods.
func (r *run) podsOf(ctx context.Context, job *batchv1.Job) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, nil //nolint:nilerr // the API rejects such a selector; a retry would not help
	}
	pods, err := r.pods.Present(ctx, r.deps.Client, job)
	if err != nil {
		return nil, err
	}
	return r.adopter.Of(ctx, job, selector, pods)
}

// reconcilePod removes the finalizer from a pod that no Job will count.
func (r *run) reconcilePod(ctx context.Context, k follow.Key) error {
	pod, err := client.Get[*corev1.Pod](ctx, r.deps.Client, k.Namespace, k.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if lost, err := r.uncountable(ctx, pod); !lost || err != nil {
		return err
	}
	return r.removeFinalizer(ctx, pod)
}
