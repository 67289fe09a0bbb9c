// Package podstate contains helpers about the state of pods: finished, active, ready and since when.
//
//   - nodestate.go: helpers about the state of nodes
package podstate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Finished reports whether every container has ended and none will start again.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Active reports whether the pod is neither finished nor being deleted.
func Active(pod *corev1.Pod) bool {
	return !Finished(pod) && pod.DeletionTimestamp == nil
}

// Condition returns the pod's condition of a type, or nil. The caller must not change it.
func Condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether the Ready condition is True.
func Ready(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ReadySince returns when the pod became ready; zero if it is not.
func ReadySince(pod *corev1.Pod) time.Time {
	if c := Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// AvailableIn returns the time until a ready pod becomes available after minReadySeconds, 0 or less if it is available.
// It returns false for a pod that is not ready.
func AvailableIn(pod *corev1.Pod, minReadySeconds int32, now time.Time) (time.Duration, bool) {
	if !Ready(pod) {
		return 0, false
	}
	if minReadySeconds == 0 {
		return 0, true
	}
	ready := ReadySince(pod)
	if ready.IsZero() {
		return 0, false
	}
	return ready.Add(time.Duration(minReadySeconds) * time.Second).Sub(now), true
}

// NextAvailable returns the shortest time until a ready pod becomes available; 0 if none will.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) time.Duration {
	var next time.Duration
	for _, p := range pods {
		if wait, ready := AvailableIn(p, minReadySeconds, now); ready && wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

// SetCondition adds or replaces a condition of a pod, which must not be shared. It reports whether the condition has
// changed. The transition time changes only with the status.
func SetCondition(pod *corev1.Pod, c corev1.PodCondition) bool {
	old := Condition(pod, c.Type)
	if old == nil {
		pod.Status.Conditions = append(pod.Status.Conditions, c)
		return true
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if *old == c {
		return false
	}
	*old = c
	return true
}
