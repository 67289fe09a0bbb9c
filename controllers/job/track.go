package job

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// maxUncounted is the maximum number of pods in the status that still have the finalizer (upstream MaxUncountedPods).
// It keeps the status below 20 kB.
const maxUncounted = 500

// track counts finished pods, and writes the status. The process may crash after any step:
//
//  1. The status gets the UIDs of the finished pods, or their indexes.
//  2. The finalizer is removed from these pods, which may then be deleted.
//  3. In the status, sums replace the UIDs. The Job's final condition is set once all of its pods are
//     counted and none is terminating.
//
// A pod without the finalizer is counted if its UID is in the status; otherwise it is ignored.
func (r *run) track(ctx context.Context, st *syncState) error {
	ready, terminating := st.ready, st.terminating
	st.job.Status.Active, st.job.Status.Ready, st.job.Status.Terminating = int32(len(st.active)+st.created), &ready,
		&terminating
	finalized := map[types.UID]bool{}
	for _, p := range st.pods {
		if tracked(p) {
			finalized[p.UID] = true
		}
	}
	st.addUp(finalized)
	leaving, all := st.count()
	if st.end != nil {
		st.set(st.end)
	}
	if err := r.write(ctx, st); err != nil {
		return ignoreGone(err)
	}
	r.failures.keep(st.job.UID, st.backoff)
	for _, action := range st.handled {
		r.counts.handled.WithLabelValues(string(action)).Inc()
	}
	freed, freeErr := r.each(leaving, func(p *corev1.Pod) error { return r.removeFinalizer(ctx, p) })
	for _, p := range freed {
		delete(finalized, p.UID)
	}
	st.addUp(finalized)
	ends := freeErr == nil && all && st.finish()
	if err := r.write(ctx, st); err != nil {
		return ignoreGone(err)
	}
	if ends {
		r.tellEnd(st)
	}
	return freeErr
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// addUp adds the pods in the status that have no finalizer to the sums, and removes their UIDs.
func (st *syncState) addUp(finalized map[types.UID]bool) {
	s := &st.job.Status
	move := func(uids *[]types.UID, sum *int32) {
		left := slices.DeleteFunc(slices.Clone(*uids), func(uid types.UID) bool { return !finalized[uid] })
		if n := len(*uids) - len(left); n > 0 {
			*sum += int32(n)
			*uids = left
		}
	}
	move(&s.UncountedTerminatedPods.Succeeded, &s.Succeeded)
	move(&s.UncountedTerminatedPods.Failed, &s.Failed)
}

// count adds finished pods to the status and returns those whose finalizer may then be removed. all is false if there
// were too many for one sync; the change of the status wakes the Job again.
func (st *syncState) count() (leaving []*corev1.Pod, all bool) {
	s, u := &st.job.Status, st.job.Status.UncountedTerminatedPods
	if indexed(st.job) {
		slices.SortStableFunc(st.pods, st.byIndex)
		s.Succeeded, s.CompletedIndexes = st.completedIndexes.Count(), st.completedIndexes.String()
		if st.job.Spec.BackoffLimitPerIndex != nil {
			s.FailedIndexes = new(st.failedIndexes.String())
		}
	}
	for _, p := range st.pods {
		failed := st.isFailed(p)
		if !tracked(p) || !st.finalizerRemovable(p, failed) {
			continue
		}
		if len(leaving) >= maxUncounted {
			return leaving, false
		}
		leaving = append(leaving, p)
		switch {
		case st.counted[p.UID]:
		case succeeded(p):
			if !indexed(st.job) {
				u.Succeeded = append(u.Succeeded, p.UID)
			}
		case failed || st.end != nil && st.end.Type == batchv1.JobFailureTarget:
			_, action := st.matchFailure(p)
			if action != "" {
				st.handled = append(st.handled, action)
			}
			if st.valid(p) && action != batchv1.PodFailurePolicyActionIgnore {
				u.Failed = append(u.Failed, p.UID)
			}
		}
	}
	return leaving, true
}

// finalizerRemovable reports whether the pod's finalizer may be removed once the status contains the pod.
func (st *syncState) finalizerRemovable(pod *corev1.Pod, failed bool) bool {
	if st.job.DeletionTimestamp != nil || st.end != nil || succeeded(pod) {
		return true
	}
	if i, ok := st.index(pod); ok && st.replaced[i] != nil && st.replaced[i].UID == pod.UID {
		return false
	}
	return failed
}

// finish sets the Job's final condition once all of its pods are counted and gone.
func (st *syncState) finish() bool {
	s, u := &st.job.Status, st.job.Status.UncountedTerminatedPods
	if st.end == nil || len(u.Succeeded)+len(u.Failed) > 0 || st.terminating > 0 {
		return false
	}
	if s.StartTime == nil { // it was never resumed from being suspended
		s.StartTime = &metav1.Time{Time: st.now}
	}
	t := batchv1.JobFailed
	if st.end.Type == batchv1.JobSuccessCriteriaMet {
		t = batchv1.JobComplete
		s.CompletionTime = &metav1.Time{Time: st.now}
	}
	st.set(st.condition(t, corev1.ConditionTrue, st.end.Reason, st.end.Message))
	return true
}

func (r *run) tellEnd(st *syncState) {
	r.counts.ended(st.job, st.end)
	if st.end.Type == batchv1.JobFailureTarget {
		r.events.Eventf(st.stored, corev1.EventTypeWarning, st.end.Reason, "%s", st.end.Message)
		return
	}
	if n := st.job.Spec.Completions; n != nil && st.job.Status.Succeeded > *n {
		r.events.Eventf(st.stored, corev1.EventTypeWarning, "TooManySucceededPods",
			"Too many succeeded pods running after completion count reached")
	}
	r.events.Eventf(st.stored, corev1.EventTypeNormal, "Completed", "Job completed")
}

// write stores the status if it has changed. It conflicts if the Job was changed since the sync began, because the pods
// were counted for that state.
func (r *run) write(ctx context.Context, st *syncState) error {
	if equality.Semantic.DeepEqual(st.job.Status, st.stored.Status) {
		return nil
	}
	next, err := client.Update(ctx, r.deps.Client, st.stored, "status", func(cur *batchv1.Job) error {
		cur.UID, cur.ResourceVersion = st.stored.UID, st.stored.ResourceVersion
		cur.Status = *st.job.Status.DeepCopy()
		return nil
	})
	if err == nil {
		r.counts.wrote(st.job, &st.stored.Status, &next.Status)
		st.stored = next
	}
	return err
}

// removeFinalizer removes the finalizer from a pod. It succeeds if the pod no longer exists.
func (r *run) removeFinalizer(ctx context.Context, pod *corev1.Pod) error {
	_, err := client.Update(ctx, r.deps.Client, pod, "", func(p *corev1.Pod) error {
		p.UID = pod.UID
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == batchv1.JobTrackingFinalizer })
		return nil
	})
	return owned.IgnoreGone(err)
}
