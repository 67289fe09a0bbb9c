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
func (ro *syncState) judge() {
	job := ro.job
	if met := isTrue(job, batchv1.JobSuccessCriteriaMet); met != nil {
		ro.end = met
		return
	}
	if target := isTrue(job, batchv1.JobFailureTarget); target != nil {
		ro.end = target
		return
	}
	switch message, late := ro.failingPod(), ro.deadline(); {
	case message != "":
		ro.fail(batchv1.JobReasonPodFailurePolicy, message)
	case ro.failed > *job.Spec.BackoffLimit || ro.restartedTooOften():
		ro.fail(batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit")
	case late:
		ro.fail(batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
	default:
		ro.judgeIndexes()
	}
}

// judgeIndexes is the part of judge for Indexed Jobs.
func (ro *syncState) judgeIndexes() {
	spec := &ro.job.Spec
	if !indexed(ro.job) {
		return
	}
	if spec.BackoffLimitPerIndex != nil {
		switch lost := ro.failedIndexes.Count(); {
		case spec.MaxFailedIndexes != nil && lost > *spec.MaxFailedIndexes:
			ro.fail(batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes")
			return
		case lost > 0 && lost+ro.completedIndexes.Count() >= *spec.Completions:
			ro.fail(batchv1.JobReasonFailedIndexes, "Job has failed indexes")
			return
		}
	}
	if message := successMessage(spec.SuccessPolicy, ro.completedIndexes); message != "" {
		ro.end = ro.condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonSuccessPolicy, message)
	}
}

// completed reports whether enough pods have succeeded and none is active. Without completions, one success is enough,
// and the controller waits for the other pods.
func (ro *syncState) completed() bool {
	if len(ro.active)+ro.created > 0 {
		return false
	}
	if n := ro.job.Spec.Completions; n != nil {
		return ro.succeeded >= *n
	}
	return ro.succeeded > 0
}

func (ro *syncState) fail(reason, message string) {
	ro.end = ro.condition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message)
}

// deadline reports whether activeDeadlineSeconds have passed since the start; otherwise it schedules a sync for that
// time.
func (ro *syncState) deadline() bool {
	limit, start := ro.job.Spec.ActiveDeadlineSeconds, ro.job.Status.StartTime
	if limit == nil || start == nil || suspended(ro.job) {
		return false
	}
	left := owned.Seconds(*limit) - ro.now.Sub(start.Time)
	if left > 0 {
		ro.wait(left)
	}
	return left <= 0
}

// wait schedules a sync after d at the latest.
func (ro *syncState) wait(d time.Duration) {
	if ro.again == 0 || d < ro.again {
		ro.again = d
	}
}

// restartedTooOften reports whether containers that are restarted in place (restartPolicy OnFailure) have reached
// backoffLimit.
func (ro *syncState) restartedTooOften() bool {
	if ro.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := int32(0)
	for _, p := range ro.pods {
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
	return restarts > 0 && restarts >= *ro.job.Spec.BackoffLimit
}

// settle sets the condition of a Job that has reached its completions, or is suspended.
func (r *run) settle(ro *syncState) {
	switch {
	case ro.completed():
		ro.end = ro.condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods")
	case ro.resumed:
		r.events.Eventf(ro.stored, corev1.EventTypeNormal, "Resumed", "Job resumed")
	case suspended(ro.job):
		if ro.set(ro.condition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")) {
			r.events.Eventf(ro.stored, corev1.EventTypeNormal, "Suspended", "Job suspended")
		}
	}
}

func (ro *syncState) condition(t batchv1.JobConditionType, status corev1.ConditionStatus, reason,
	message string) *batchv1.JobCondition {
	now := metav1.NewTime(ro.now)
	return &batchv1.JobCondition{Type: t, Status: status, LastProbeTime: now, LastTransitionTime: now, Reason: reason,
		Message: message}
}

// set adds or replaces a condition. It reports whether anything but times has changed.
func (ro *syncState) set(c *batchv1.JobCondition) bool {
	s := &ro.job.Status
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
