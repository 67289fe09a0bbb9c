package job

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// burst is the maximum number of pods created or deleted in one sync (upstream MaxPodCreateDeletePerSync).
const burst = 500

// parallel is the number of concurrent requests in a sync.
const parallel = 50

// manage moves the number of active pods towards the desired number: it deletes surplus pods or, if there are none,
// creates missing ones.
func (r *run) manage(ctx context.Context, st *syncState) error {
	if suspended(st.job) {
		return r.remove(ctx, st, slices.Clone(st.active))
	}
	want := int(*st.job.Spec.Parallelism)
	switch n := st.job.Spec.Completions; {
	case n != nil:
		want = max(0, min(int(*n-st.succeeded), want))
	case st.succeeded > 0:
		want = len(st.active) // create none; running pods may finish
	}
	if extra := st.surplus(len(st.active) - want); len(extra) > 0 {
		return r.remove(ctx, st, extra[:min(len(extra), burst)])
	}
	missing := want - len(st.active)
	if replacesOnlyFailed(st.job) {
		missing -= int(st.terminating)
	}
	if missing <= 0 {
		return nil
	}
	if !indexed(st.job) {
		if wait := st.backoff.left(st.now); wait > 0 {
			st.wait(wait)
			return nil
		}
		return r.create(ctx, st, make([]int32, min(missing, burst)))
	}
	return r.create(ctx, st, st.pending(min(missing, burst)))
}

// surplus returns n active pods to delete, in an Indexed Job also every pod without a valid index and all but one of
// each index.
func (st *syncState) surplus(n int) []*corev1.Pod {
	ranked := podstate.Rank(st.active, nil, st.now)
	if !indexed(st.job) {
		return ranked[:max(0, n)]
	}
	var extra, left []*corev1.Pod
	kept := map[int32]bool{}
	for _, p := range slices.Backward(ranked) { // of each index, keep the pod that ranks last for deletion
		if i, ok := st.index(p); !ok || kept[i] {
			extra = append(extra, p)
		} else {
			kept[i] = true
			left = append(left, p)
		}
	}
	slices.Reverse(left)
	if more := n - len(extra); more > 0 {
		extra = append(extra, left[:min(more, len(left))]...)
	}
	return extra
}

// pending returns the first n indexes that need a pod and whose backoff has ended.
func (st *syncState) pending(n int) []int32 {
	taken := st.completedIndexes.Merge(st.failedIndexes)
	var have []int32
	for _, p := range st.pods {
		if i, ok := st.index(p); ok && (podstate.Active(p) || terminating(p) && replacesOnlyFailed(st.job)) {
			have = append(have, i)
		}
	}
	missing := taken.Merge(batch.IndexesOf(have...)).Missing(n, *st.job.Spec.Completions)
	if st.job.Spec.BackoffLimitPerIndex == nil {
		if wait := st.backoff.left(st.now); wait > 0 {
			st.wait(wait)
			return nil
		}
		return missing
	}
	return slices.DeleteFunc(missing, func(i int32) bool {
		failed := st.replaced[i]
		if failed == nil {
			return false
		}
		wait := backoff{failures: attempts(failed) + 1, last: ended(failed)}.left(st.now)
		if wait > 0 {
			st.wait(wait)
		}
		return wait > 0
	})
}

// create creates a pod for each item: its index in an Indexed Job.
func (r *run) create(ctx context.Context, st *syncState, items []int32) error {
	var made, failed atomic.Int32
	_, err := owned.SlowStart(1, len(items), func(i int) error {
		_, err := r.control.Create(ctx, st.stored, r.podFor(st, items[i]))
		switch {
		case err == nil:
			made.Add(1)
		case owned.NamespaceTerminating(err):
			return nil // the namespace is terminating
		default:
			failed.Add(1)
		}
		return err
	})
	st.created = int(made.Load())
	r.counts.creations(st, st.created, int(failed.Load()))
	return err
}

// remove deletes active pods that count neither as succeeded nor as failed.
func (r *run) remove(ctx context.Context, st *syncState, pods []*corev1.Pod) error {
	gone, err := r.each(pods, func(p *corev1.Pod) error {
		if err := r.removeFinalizer(ctx, p); err != nil {
			return err
		}
		return r.control.Delete(ctx, st.stored, p)
	})
	for _, p := range gone {
		st.pods = slices.DeleteFunc(st.pods, func(other *corev1.Pod) bool { return other.UID == p.UID })
		st.deleted(p)
	}
	return err
}

// stop deletes the active pods of a Job that ends. They keep the finalizer until they are counted. If a deletion fails,
// the Job does not end yet.
func (r *run) stop(ctx context.Context, st *syncState) error {
	gone, err := r.each(st.active, func(p *corev1.Pod) error { return r.control.Delete(ctx, st.stored, p) })
	for _, p := range gone {
		st.deleted(p)
	}
	if err != nil {
		st.end = nil
	}
	return err
}

// each calls f for the pods, and returns the pods for which f succeeded.
func (r *run) each(pods []*corev1.Pod, f func(*corev1.Pod) error) ([]*corev1.Pod, error) {
	done := make([]atomic.Bool, len(pods))
	at := make([]int, len(pods))
	for i := range at {
		at[i] = i
	}
	errs := follow.Each(parallel, at, func(i int) error {
		err := f(pods[i])
		done[i].Store(err == nil)
		return err
	})
	var good []*corev1.Pod
	for i, p := range pods {
		if done[i].Load() {
			good = append(good, p)
		}
	}
	return good, errors.Join(errs...)
}

// byIndex orders pods by their completion index; pods without an index come first.
func (st *syncState) byIndex(a, b *corev1.Pod) int {
	of := func(p *corev1.Pod) int32 {
		if i, ok := number(p, batchv1.JobCompletionIndexAnnotation); ok {
			return i
		}
		return -1
	}
	return cmp.Compare(of(a), of(b))
}
