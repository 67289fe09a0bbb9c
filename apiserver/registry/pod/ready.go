package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ready reports whether the pod's condition Ready is true.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Disrupts reports whether the end of the pod is a disruption: the pod has started, has not ended and is not being
// deleted.
func Disrupts(pod *corev1.Pod) bool {
	return !podDone(pod) && pod.Status.Phase != corev1.PodPending && pod.DeletionTimestamp == nil
}

// SetCondition replaces the condition of c's type. It keeps the transition time if the status is the same.
func SetCondition(status *corev1.PodStatus, c corev1.PodCondition) {
	i := slices.IndexFunc(status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return
	}
	if status.Conditions[i].Status == c.Status {
		c.LastTransitionTime = status.Conditions[i].LastTransitionTime
	}
	status.Conditions[i] = c
}
