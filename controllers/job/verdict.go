package job

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/owned"
)

// judge decides whether the Job ends before its completions are reached. It checks the reasons in upstream's order; the
// first one decides. It keeps an end that the status already contains.
func (st *syncState) judge() {
	job := st.job
	if met := isTrue(job, batchv1.JobSuccessCriteriaMet); met != nil {
		st.end = met
		return
	}
	if target := isTrue(job, batchv1.JobFailureTarget); target != nil {
		st.end = target
		return
	}
	switch message, late := st.failingPod(), st.deadline(); {
	case message != "":
		st.fail(batchv1.JobReasonPodFailurePolicy, message)
	case st.failed > *job.Spec.BackoffLimit || st.restartedTooOften():
		st.fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case late:
		st.fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	default:
		st.judgeIndexes()
	}
}

// judgeIndexes is the part of judge for Indexed Jobs.
func (st *syncState) judgeIndexes() {
	spec := &st.job.Spec
	if !indexed(st.job) {
		return
	}
	if spec.BackoffLimitPerIndex != nil {
		switch lost := st.failedIndexes.Count(); {
		case spec.MaxFailedIndexes != nil && lost > *spec.MaxFailedIndexes:
			st.fail(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
			return
		case lost > 0 && lost+st.completedIndexes.Count() >= *spec.Completions:
			st.fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
			return
		}
	}
	if message := successMessage(spec.SuccessPolicy, st.completedIndexes); message != "" {
		st.end = st.condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, message)
	}
}

// completed reports whether enough pods have succeeded and none is active. Without completions, one success is enough,
// and the controller waits for the other pods.
func (st *syncState) completed() bool {
	if len(st.active)+st.created > 0 {
		return false
	}
	if n := st.job.Spec.Completions; n != nil {
		return st.succeeded >= *n
	}
	return st.succeeded > 0
}

func (st *syncState) fail(reason, message string) {
	st.end = st.condition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message)
}

// deadline reports whether activeDeadlineSeconds have passed since the start; otherwise it schedules a sync for that
// time.
func (st *syncState) deadline() bool {
	limit, start := st.job.Spec.ActiveDeadlineSeconds, st.job.Status.StartTime
	if limit == nil || start == nil || suspended(st.job) {
		return false
	}
	left := owned.Seconds(*limit) - st.now.Sub(start.Time)
	if left > 0 {
		st.wait(left)
	}
	return left <= 0
}

// wait schedules a sync after d at the latest.
func (st *syncState) wait(d time.Duration) {
	if st.again == 0 || d < st.again {
		st.again = d
	}
}

// restartedTooOften reports whether containers that are restarted in place (restartPolicy OnFailure) have reached
// backoffLimit.
func (st *syncState) restartedTooOften() bool {
	if st.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range st.pods {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, s := range p.Status.InitContainerStatuses {
			restarts += s.RestartCount
		}
		for _, s := range p.Status.ContainerStatuses {
			restarts += s.RestartCount
		}
	}
	return restarts > 0 && restarts >= *st.job.Spec.BackoffLimit
}

// settle sets the condition of a Job that has reached its completions, or is suspended.
func (r *run) settle(st *syncState) {
	switch {
	case st.completed():
		st.end = st.condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods")
	case st.resumed:
		r.events.Eventf(st.stored, corev1.EventTypeNormal, "Resumed", "Job resumed")
	case suspended(st.job):
		if st.set(st.condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")) {
			r.events.Eventf(st.stored, corev1.EventTypeNormal, "Suspended", "Job suspended")
		}
	}
}

func (st *syncState) condition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason,
	message string) *batchv1.JobCondition {
	now := metav1.NewTime(st.now)
	return &batchv1.JobCondition{Type: t, Status: status, LastProbeTime: now, LastTransitionTime: now, Reason: reason,
		Message: message}
}

// set adds or replaces a condition. It reports whether anything but times has changed.
func (st *syncState) set(c *batchv1.JobCondition) bool {
	s := &st.job.Status
	for i, old := range s.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return false
		}
		s.Conditions[i] = *c
		return true
	}
	s.Conditions = append(s.Conditions, *c)
	return true
}
