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
func (r *run) track(ctx context.Context, ro *syncState) error {
	ready, terminating := ro.ready, ro.terminating
	ro.job.Status.Active, ro.job.Status.Ready, ro.job.Status.Terminating = int32(len(ro.active)+ro.created), &ready,
		&terminating
	finalized := map[types.UID]bool{}
	for _, p := range ro.pods {
		if tracked(p) {
			finalized[p.UID] = true
		}
	}
	ro.addUp(finalized)
	leaving, all := ro.count()
	if ro.end != nil {
		ro.set(ro.end)
	}
	if err := r.write(ctx, ro); err != nil {
		return ignoreGone(err)
	}
	r.failures.keep(ro.job.UID, ro.backoff)
	for _, action := range ro.handled {
		r.counts.handled.WithLabelValues(string(action)).Inc()
	}
	freed, freeErr := r.each(leaving, func(p *corev1.Pod) error { return r.removeFinalizer(ctx, p) })
	for _, p := range freed {
		delete(finalized, p.UID)
	}
	ro.addUp(finalized)
	ends := freeErr == nil && all && ro.finish()
	if err := r.write(ctx, ro); err != nil {
		return ignoreGone(err)
	}
	if ends {
		r.tellEnd(ro)
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
func (ro *syncState) addUp(finalized map[types.UID]bool) {
	s := &ro.job.Status
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
func (ro *syncState) count() (leaving []*corev1.Pod, all bool) {
	s, u := &ro.job.Status, ro.job.Status.UncountedTerminatedPods
	if indexed(ro.job) {
		slices.SortStableFunc(ro.pods, ro.byIndex)
		s.Succeeded, s.CompletedIndexes = ro.completedIndexes.Count(), ro.completedIndexes.String()
		if ro.job.Spec.BackoffLimitPerIndex != nil {
			s.FailedIndexes = new(ro.failedIndexes.String())
		}
	}
	for _, p := range ro.pods {
		failed := ro.isFailed(p)
		if !tracked(p) || !ro.finalizerRemovable(p, failed) {
			continue
		}
		if len(leaving) >= maxUncounted {
			return leaving, false
		}
		leaving = append(leaving, p)
		switch {
		case ro.counted[p.UID]:
		case succeeded(p):
			if !indexed(ro.job) {
				u.Succeeded = append(u.Succeeded, p.UID)
			}
		case failed || ro.end != nil && ro.end.Type == batchv1.JobFailureTarget:
			_, action := ro.matchFailure(p)
			if action != "" {
				ro.handled = append(ro.handled, action)
			}
			if ro.valid(p) && action != batchv1.PodFailurePolicyActionIgnore {
				u.Failed = append(u.Failed, p.UID)
			}
		}
	}
	return leaving, true
}

// finalizerRemovable reports whether the pod's finalizer may be removed once the status contains the pod.
func (ro *syncState) finalizerRemovable(pod *corev1.Pod, failed bool) bool {
	if ro.job.DeletionTimestamp != nil || ro.end != nil || succeeded(pod) {
		return true
	}
	if i, ok := ro.index(pod); ok && ro.replaced[i] != nil && ro.replaced[i].UID == pod.UID {
		return false
	}
	return failed
}

// finish sets the Job's final condition once all of its pods are counted and gone.
func (ro *syncState) finish() bool {
	s, u := &ro.job.Status, ro.job.Status.UncountedTerminatedPods
	if ro.end == nil || len(u.Succeeded)+len(u.Failed) > 0 || ro.terminating > 0 {
		return false
	}
	if s.StartTime == nil { // it was never resumed from being suspended
		s.StartTime = &metav1.Time{Time: ro.now}
	}
	t := batchv1.JobFailed
	if ro.end.Type == batchv1.JobSuccessCriteriaMet {
		t = batchv1.JobComplete
		s.CompletionTime = &metav1.Time{Time: ro.now}
	}
	ro.set(ro.condition(t, corev1.ConditionTrue, ro.end.Reason, ro.end.Message))
	return true
}

func (r *run) tellEnd(ro *syncState) {
	r.counts.ended(ro.job, ro.end)
	if ro.end.Type == batchv1.JobFailureTarget {
		r.events.Eventf(ro.stored, corev1.EventTypeWarning, ro.end.Reason, "%s", ro.end.Message)
		return
	}
	if n := ro.job.Spec.Completions; n != nil && ro.job.Status.Succeeded > *n {
		r.events.Eventf(ro.stored, corev1.EventTypeWarning, "TooManySucceededPods",
			"Too many succeeded pods running after completion count reached")
	}
	r.events.Eventf(ro.stored, corev1.EventTypeNormal, "Completed", "Job completed")
}

// write stores the status if it has changed. It conflicts if the Job was changed since the sync began, because the pods
// were counted for that state.
func (r *run) write(ctx context.Context, ro *syncState) error {
	if equality.Semantic.DeepEqual(ro.job.Status, ro.stored.Status) {
		return nil
	}
	next, err := client.Update(ctx, r.deps.Client, ro.stored, "status", func(cur *batchv1.Job) error {
		cur.UID, cur.ResourceVersion = ro.stored.UID, ro.stored.ResourceVersion
		cur.Status = *ro.job.Status.DeepCopy()
		return nil
	})
	if err == nil {
		r.counts.wrote(ro.job, &ro.stored.Status, &next.Status)
		ro.stored = next
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
	if owned.Gone(err) {
		return nil
	}
	return err
}
