package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Ready says whether the pod's status calls it ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Disrupts says whether the pod's end would disrupt anything: not when it has
// not begun, has ended or is on its way out.
func Disrupts(pod *corev1.Pod) bool {
	return !podDone(pod) && pod.Status.Phase != corev1.PodPending && pod.DeletionTimestamp == nil
}

// SetCondition puts c in the place of the condition of its type. The time of the
// last transition stays where the condition's status does.
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
