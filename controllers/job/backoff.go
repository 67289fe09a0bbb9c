package job

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/podstate"
)

// The delay before a failed pod is replaced is 10 s, and doubles with each further failure up to 10 min (upstream
// DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff).
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute
)

// backoff counts the failed pods of a Job since the last success.
type backoff struct {
	failures int32
	last     time.Time // when the last of them ended
}

// after returns the backoff after more pods have finished.
func (b backoff) after(succeeded, failed []*corev1.Pod) backoff {
	var success time.Time
	for _, p := range succeeded {
		if t := ended(p); t.After(success) {
			success = t
		}
	}
	if len(succeeded) > 0 {
		b = backoff{}
	}
	for _, p := range failed {
		t := ended(p)
		if len(succeeded) > 0 && !t.After(success) {
			continue
		}
		b.failures++
		if t.After(b.last) {
			b.last = t
		}
	}
	return b
}

// left returns the rest of the delay. Setting the clock back does not extend it.
func (b backoff) left(now time.Time) time.Duration {
	if b.failures == 0 {
		return 0
	}
	wait := firstBackoff
	for n := b.failures; n > 1 && wait < maxBackoff; n-- {
		wait *= 2
	}
	return max(0, min(wait, maxBackoff)-max(0, now.Sub(b.last)))
}

// failures contains the backoff of each Job by UID.
type failures struct {
	mu sync.Mutex // guards of
	of map[types.UID]backoff
}

func newFailures() *failures { return &failures{of: map[types.UID]backoff{}} }

// next returns the backoff after the pods that the sync has found finished. For a Job that is new to this process it
// considers all pods, including counted ones, so that a restart of the process does not reset the backoff.
func (f *failures) next(st *syncState) backoff {
	f.mu.Lock()
	b, known := f.of[st.job.UID]
	f.mu.Unlock()
	if known {
		return b.after(st.fresh(succeeded), st.fresh(st.isFailed))
	}
	var good, bad []*corev1.Pod
	for _, p := range st.pods {
		switch {
		case succeeded(p):
			good = append(good, p)
		case st.isFailed(p):
			bad = append(bad, p)
		}
	}
	return b.after(good, bad)
}

// keep stores the backoff after a sync whose pods the status contains: the next sync does not consider them again.
func (f *failures) keep(job types.UID, b backoff) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of[job] = b
}

func (f *failures) forget(job types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, job)
}

// ended returns when a pod finished, as far as known: when its last container ended, when it became unready, when its
// deletion was requested, or when it was created (upstream getFinishedTime).
func ended(pod *corev1.Pod) time.Time {
	var last time.Time
	open := func(s corev1.ContainerStatus) bool {
		t := s.State.Terminated
		if t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
		return t == nil || t.FinishedAt.IsZero()
	}
	if !slices.ContainsFunc(pod.Status.ContainerStatuses, open) && !last.IsZero() {
		return last
	}
	if c := podstate.Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse &&
		!c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp == nil {
		return pod.CreationTimestamp.Time
	}
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}
