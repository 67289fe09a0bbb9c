package job

import (
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/batch"
	"monopod/controllers/podstate"
)

// syncState is the state of a Job and its pods during one sync.
type syncState struct {
	stored *batchv1.Job // as read; shared
	job    *batchv1.Job // copy whose status the sync changes
	now    time.Time

	resumed bool // since the last sync, from being suspended

	pods        []*corev1.Pod // without the ones that the sync has removed
	active      []*corev1.Pod // neither finished nor terminating
	created     int           // by this sync
	removed     int           // by this sync
	ready       int32         // of the active ones
	terminating int32
	counted     map[types.UID]bool // in uncountedTerminatedPods, but not in the sums yet

	// The fields below include pods that the status does not count yet.
	succeeded, failed int32
	completedIndexes  batch.Indexes // completed indexes of an Indexed Job
	failedIndexes     batch.Indexes // failed indexes, with backoffLimitPerIndex

	// replaced contains failed pods of indexes that have no other pod yet, by index. They keep the finalizer, since their
	// replacement inherits their failure count.
	replaced map[int32]*corev1.Pod

	handled []batchv1.PodFailurePolicyAction // of the rules that matched the pods counted by this sync

	backoff backoff
	end     *batchv1.JobCondition // SuccessCriteriaMet or FailureTarget; nil: the Job continues
	again   time.Duration
}

func newRound(stored *batchv1.Job, pods []*corev1.Pod, now time.Time) *syncState {
	ro := &syncState{stored: stored, job: stored.DeepCopy(), now: now, pods: slices.Clone(pods), counted: map[types.UID]bool{}}
	s := &ro.job.Status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	for _, uid := range slices.Concat(s.UncountedTerminatedPods.Succeeded, s.UncountedTerminatedPods.Failed) {
		ro.counted[uid] = true
	}
	for _, p := range pods {
		switch {
		case podstate.Active(p):
			ro.active = append(ro.active, p)
			if podstate.Ready(p) {
				ro.ready++
			}
		case terminating(p):
			ro.terminating++
		}
	}
	if !suspended(ro.job) {
		if ro.resumed = isTrue(ro.job, batchv1.JobSuspended) != nil; ro.resumed {
			ro.set(ro.condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed"))
		}
		if ro.resumed || s.StartTime == nil { // activeDeadlineSeconds count from the start or the last resumption
			s.StartTime = &metav1.Time{Time: ro.now}
		}
	}
	ro.sum()
	return ro
}

// sum counts finished pods, including those that the status does not count yet.
func (ro *syncState) sum() {
	s, u := &ro.job.Status, ro.job.Status.UncountedTerminatedPods
	ro.succeeded = s.Succeeded + int32(len(u.Succeeded)+len(ro.fresh(succeeded)))
	ro.failed = s.Failed + int32(len(u.Failed))
	for _, p := range ro.fresh(ro.isFailed) {
		if _, action := ro.matchFailure(p); action != batchv1.PodFailurePolicyActionIgnore {
			ro.failed++
		}
	}
	if !indexed(ro.job) {
		return
	}
	ro.completedIndexes = ro.listed(s.CompletedIndexes).Merge(ro.indexesOf(succeeded))
	ro.succeeded = ro.completedIndexes.Count()
	if ro.job.Spec.BackoffLimitPerIndex != nil {
		if s.FailedIndexes != nil {
			ro.failedIndexes = ro.listed(*s.FailedIndexes)
		}
		ro.failedIndexes = ro.failedIndexes.Merge(ro.indexesOf(ro.isIndexFailed))
		ro.replaced = ro.replacements()
	}
}

// listed parses a list of indexes of the status. It drops indexes from completions on, which a user may have lowered.
func (ro *syncState) listed(text string) batch.Indexes {
	list, err := batch.ParseIndexes(text, math.MaxInt32)
	if err != nil {
		return nil // the API rejects such a list
	}
	return list.Below(*ro.job.Spec.Completions).Merge(nil)
}

// indexesOf returns the indexes of the uncounted pods that f accepts.
func (ro *syncState) indexesOf(f func(*corev1.Pod) bool) batch.Indexes {
	var found []int32
	for _, p := range ro.pods {
		if i, ok := ro.index(p); ok && tracked(p) && f(p) {
			found = append(found, i)
		}
	}
	return batch.IndexesOf(found...)
}

// fresh returns the pods that f accepts and the status does not count yet.
func (ro *syncState) fresh(f func(*corev1.Pod) bool) []*corev1.Pod {
	var found []*corev1.Pod
	for _, p := range ro.pods {
		if tracked(p) && !ro.counted[p.UID] && ro.valid(p) && f(p) {
			found = append(found, p)
		}
	}
	return found
}

// valid reports whether the pod counts: in an Indexed Job its index must be below completions.
func (ro *syncState) valid(pod *corev1.Pod) bool {
	_, ok := ro.index(pod)
	return ok || !indexed(ro.job)
}

// index returns the completion index of a pod of an Indexed Job.
func (ro *syncState) index(pod *corev1.Pod) (int32, bool) {
	if !indexed(ro.job) {
		return 0, false
	}
	i, ok := number(pod, batchv1.JobCompletionIndexAnnotation)
	return i, ok && i < *ro.job.Spec.Completions
}

// number parses an annotation; false if it is missing or is not a non-negative number.
func number(pod *corev1.Pod, annotation string) (int32, bool) {
	n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	return int32(n), err == nil && n >= 0
}

// isFailed reports whether the pod counts as failed. A terminating pod counts, since it may never end, unless
// podReplacementPolicy is Failed.
func (ro *syncState) isFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || terminating(pod) && !replacesOnlyFailed(ro.job)
}

// drop removes a pod that the sync has deleted and that no longer counts.
func (ro *syncState) drop(pod *corev1.Pod) {
	same := func(p *corev1.Pod) bool { return p.UID == pod.UID }
	ro.pods = slices.DeleteFunc(ro.pods, same)
	ro.deleted(pod)
}

// deleted records that an active pod is terminating now.
func (ro *syncState) deleted(pod *corev1.Pod) {
	ro.active = slices.DeleteFunc(ro.active, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	ro.terminating++
	ro.removed++
	if podstate.Ready(pod) {
		ro.ready--
	}
}

func succeeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }

func terminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && !podstate.Finished(pod)
}

func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

// foreign reports whether another controller runs the Job.
func foreign(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// replacesOnlyFailed reports whether a terminating pod is replaced only after it has ended.
func replacesOnlyFailed(job *batchv1.Job) bool {
	return job.Spec.PodFailurePolicy != nil || job.Spec.PodReplacementPolicy != nil &&
		*job.Spec.PodReplacementPolicy == batchv1.Failed
}

// finished reports whether the Job is Complete or Failed.
func finished(job *batchv1.Job) bool {
	return isTrue(job, batchv1.JobComplete) != nil || isTrue(job, batchv1.JobFailed) != nil
}

// isTrue returns the condition of the given type if it is True.
func isTrue(job *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == t && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
