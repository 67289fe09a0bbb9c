// Package ttlafterfinished deletes each finished Job after its ttlSecondsAfterFinished.
package ttlafterfinished

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name of the controller.
const Name = "ttl-after-finished"

// Config of the controller.
type Config struct {
	Workers int // --concurrent-ttl-after-finished-syncs; 0 means upstream's 5
}

// Controller deletes finished Jobs.
type Controller struct {
	deps follow.Deps
	cfg  Config
	late prometheus.Histogram
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metric.
func New(deps follow.Deps, cfg Config) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	late, err := follow.Register(deps.Metrics, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "ttl_after_finished_controller_job_deletion_duration_seconds",
		Help:    "Time between the end of the TTL of a Job and its deletion.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	}))
	return &Controller{deps: deps, cfg: cfg, late: late}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Jobs}, Keys: follow.Plain(onJob)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

// onJob wakes finished Jobs with a TTL.
func onJob(_, new client.Object) []follow.Key {
	if new == nil {
		return nil
	}
	if _, ok := expiry(new.(*batchv1.Job)); !ok {
		return nil
	}
	return []follow.Key{follow.KeyOf(new)}
}

// reconcile deletes the Job and its pods if its TTL has expired; otherwise it returns the remaining time.
func (c *Controller) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	job, err := client.Get[*batchv1.Job](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	at, ok := expiry(job)
	if !ok {
		return 0, nil
	}
	if left := at.Sub(c.deps.Clock.Now()); left > 0 {
		return left, nil
	}
	// With the resourceVersion the deletion conflicts if the TTL was changed meanwhile.
	_, err = c.deps.Client.Delete(ctx, client.RefOf(job), metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err == nil {
		c.late.Observe(c.deps.Clock.Since(at).Seconds())
	}
	return 0, err
}

// expiry returns when the Job is deleted; false if never, not known yet, or already deleted.
func expiry(job *batchv1.Job) (time.Time, bool) {
	if job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) &&
			c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second), true
		}
	}
	return time.Time{}, false
}
