package job

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
)

// metrics contains upstream's metrics: names, labels and label values.
type metrics struct {
	took                                                            *prometheus.HistogramVec
	syncs, jobs, pods, indexes, created, handled, tracked, external *prometheus.CounterVec
}

func newMetrics(m *follow.Metrics) (*metrics, error) {
	var errs []error
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c, err := follow.Register(m,
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "job_controller_" + name, Help: help}, labels))
		errs = append(errs, err)
		return c
	}
	took, err := follow.Register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "job_controller_job_sync_duration_seconds", Help: "How long a sync of a Job takes.",
		Buckets: prometheus.ExponentialBuckets(0.004, 2, 15),
	}, []string{"completion_mode", "result", "action"}))
	errs = append(errs, err)
	return &metrics{
		took:    took,
		syncs:   counter("job_syncs_total", "Syncs of Jobs.", "completion_mode", "result", "action"),
		jobs:    counter("jobs_finished_total", "Jobs that have finished.", "completion_mode", "result", "reason"),
		pods:    counter("job_pods_finished_total", "Finished pods that are fully tracked.", "completion_mode", "result"),
		indexes: counter("job_finished_indexes_total", "Indexes that have finished.", "status", "backoffLimit"),
		created: counter("job_pods_creation_total", "Pods created, by the reason for their creation.", "reason", "status"),
		handled: counter("pod_failures_handled_by_failure_policy_total",
			"Failed pods that a rule of podFailurePolicy matched, by its action.", "action"),
		tracked: counter("terminated_pods_tracking_finalizer_total",
			"Finished pods that got (add) and lost (delete) the finalizer batch.kubernetes.io/job-tracking.", "event"),
		external: counter("jobs_by_external_controller_total", "Jobs that another controller runs.", "controller_name"),
	}, errors.Join(errs...)
}

// Values of labels.
const (
	labelSucceeded = "succeeded"
	labelFailed    = "failed"
)

func modeOf(job *batchv1.Job) string {
	if indexed(job) {
		return string(batchv1.IndexedCompletion)
	}
	return string(batchv1.NonIndexedCompletion)
}

// synced counts a sync of the given duration.
func (m *metrics) synced(st *syncState, took time.Duration, err error) {
	result, action := "success", "tracking"
	if err != nil {
		result = "error"
	}
	switch {
	case st.created > 0:
		action = "pods_created"
	case st.removed > 0:
		action = "pods_deleted"
	}
	m.syncs.WithLabelValues(modeOf(st.job), result, action).Inc()
	m.took.WithLabelValues(modeOf(st.job), result, action).Observe(took.Seconds())
}

// wrote counts the pods and indexes that an update of the status has newly counted.
func (m *metrics) wrote(job *batchv1.Job, was, is *batchv1.JobStatus) {
	add := func(c prometheus.Counter, n int32) {
		if n > 0 {
			c.Add(float64(n))
		}
	}
	add(m.pods.WithLabelValues(modeOf(job), labelSucceeded), is.Succeeded-was.Succeeded)
	add(m.pods.WithLabelValues(modeOf(job), labelFailed), is.Failed-was.Failed)
	if !indexed(job) {
		return
	}
	limit := "global"
	if job.Spec.BackoffLimitPerIndex != nil {
		limit = "perIndex"
	}
	count := func(text *string) int32 {
		if text == nil {
			return 0
		}
		list, _ := batch.ParseIndexes(*text, *job.Spec.Completions) // written by this controller
		return list.Count()
	}
	add(m.indexes.WithLabelValues(labelSucceeded, limit), count(&is.CompletedIndexes)-count(&was.CompletedIndexes))
	add(m.indexes.WithLabelValues(labelFailed, limit), count(is.FailedIndexes)-count(was.FailedIndexes))
}

// ended counts a finished Job.
func (m *metrics) ended(job *batchv1.Job, end *batchv1.JobCondition) {
	result := labelSucceeded
	if end.Type == batchv1.JobFailureTarget {
		result = labelFailed
	}
	m.jobs.WithLabelValues(modeOf(job), result, end.Reason).Inc()
}

// creations counts the pods that a sync has created or failed to create.
func (m *metrics) creations(st *syncState, made, failed int) {
	reason := "new"
	switch only := st.job.Spec.PodReplacementPolicy; {
	case only != nil && *only == batchv1.Failed && st.failed > 0:
		reason = "recreate_failed"
	case st.failed > 0 || st.terminating > 0:
		reason = "recreate_terminating_or_failed"
	}
	m.created.WithLabelValues(reason, labelSucceeded).Add(float64(made))
	m.created.WithLabelValues(reason, labelFailed).Add(float64(failed))
}

// pod counts a finished pod that got or lost the finalizer.
func (m *metrics) pod(was, is *corev1.Pod) {
	waits := func(p *corev1.Pod) bool { return p != nil && podstate.Finished(p) && tracked(p) }
	switch before, after := waits(was), waits(is); {
	case !before && after:
		m.tracked.WithLabelValues("add").Inc()
	case before && !after:
		m.tracked.WithLabelValues("delete").Inc()
	}
}
