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

func newSyncState(stored *batchv1.Job, pods []*corev1.Pod, now time.Time) *syncState {
	st := &syncState{stored: stored, job: stored.DeepCopy(), now: now, pods: slices.Clone(pods),
		counted: map[types.UID]bool{}}
	s := &st.job.Status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	for _, uid := range slices.Concat(s.UncountedTerminatedPods.Succeeded, s.UncountedTerminatedPods.Failed) {
		st.counted[uid] = true
	}
	for _, p := range pods {
		switch {
		case podstate.Active(p):
			st.active = append(st.active, p)
			if podstate.Ready(p) {
				st.ready++
			}
		case terminating(p):
			st.terminating++
		}
	}
	if !suspended(st.job) {
		if st.resumed = isTrue(st.job, batchv1.JobSuspended) != nil; st.resumed {
			st.set(st.condition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed"))
		}
		if st.resumed || s.StartTime == nil { // activeDeadlineSeconds count from the start or the last resumption
			s.StartTime = &metav1.Time{Time: st.now}
		}
	}
	st.sum()
	return st
}

// sum counts finished pods, including those that the status does not count yet.
func (st *syncState) sum() {
	s, u := &st.job.Status, st.job.Status.UncountedTerminatedPods
	st.succeeded = s.Succeeded + int32(len(u.Succeeded)+len(st.fresh(succeeded)))
	st.failed = s.Failed + int32(len(u.Failed))
	for _, p := range st.fresh(st.isFailed) {
		if _, action := st.matchFailure(p); action != batchv1.PodFailurePolicyActionIgnore {
			st.failed++
		}
	}
	if !indexed(st.job) {
		return
	}
	st.completedIndexes = st.parseIndexes(s.CompletedIndexes).Merge(st.indexesOf(succeeded))
	st.succeeded = st.completedIndexes.Count()
	if st.job.Spec.BackoffLimitPerIndex != nil {
		if s.FailedIndexes != nil {
			st.failedIndexes = st.parseIndexes(*s.FailedIndexes)
		}
		st.failedIndexes = st.failedIndexes.Merge(st.indexesOf(st.isIndexFailed))
		st.replaced = st.replacements()
	}
}

// parseIndexes parses a list of indexes of the status. It drops indexes from completions on, which a user may have
// lowered.
func (st *syncState) parseIndexes(text string) batch.Indexes {
	list, err := batch.ParseIndexes(text, math.MaxInt32)
	if err != nil {
		return nil // the API rejects such a list
	}
	return list.Below(*st.job.Spec.Completions).Merge(nil)
}

// indexesOf returns the indexes of the uncounted pods that f accepts.
func (st *syncState) indexesOf(f func(*corev1.Pod) bool) batch.Indexes {
	var found []int32
	for _, p := range st.pods {
		if i, ok := st.index(p); ok && tracked(p) && f(p) {
			found = append(found, i)
		}
	}
	return batch.IndexesOf(found...)
}

// fresh returns the pods that f accepts and the status does not count yet.
func (st *syncState) fresh(f func(*corev1.Pod) bool) []*corev1.Pod {
	var found []*corev1.Pod
	for _, p := range st.pods {
		if tracked(p) && !st.counted[p.UID] && st.valid(p) && f(p) {
			found = append(found, p)
		}
	}
	return found
}

// valid reports whether the pod counts: in an Indexed Job its index must be below completions.
func (st *syncState) valid(pod *corev1.Pod) bool {
	_, ok := st.index(pod)
	return ok || !indexed(st.job)
}

// index returns the completion index of a pod of an Indexed Job.
func (st *syncState) index(pod *corev1.Pod) (int32, bool) {
	if !indexed(st.job) {
		return 0, false
	}
	i, ok := number(pod, batchv1.JobCompletionIndexAnnotation)
	return i, ok && i < *st.job.Spec.Completions
}

// number parses an annotation; false if it is missing or is not a non-negative number.
func number(pod *corev1.Pod, annotation string) (int32, bool) {
	n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	return int32(n), err == nil && n >= 0
}

// isFailed reports whether the pod counts as failed. A terminating pod counts, since it may never end, unless
// podReplacementPolicy is Failed.
func (st *syncState) isFailed(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || terminating(pod) && !replacesOnlyFailed(st.job)
}

// deleted records that an active pod is terminating now.
func (st *syncState) deleted(pod *corev1.Pod) {
	st.active = slices.DeleteFunc(st.active, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	st.terminating++
	st.removed++
	if podstate.Ready(pod) {
		st.ready--
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
