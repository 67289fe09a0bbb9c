package status

import corev1 "k8s.io/api/core/v1"

// Merge merges the agent's status into the stored one. It keeps the conditions of other components, and the phase of a
// finished pod.
func Merge(cur, want *corev1.PodStatus) *corev1.PodStatus {
	next := want.DeepCopy()
	next.Conditions = WithForeign(next.Conditions, cur.Conditions)
	next.NominatedNodeName, next.Resize = cur.NominatedNodeName, cur.Resize
	if Finished(cur.Phase) && !Finished(next.Phase) {
		next.Phase, next.Reason, next.Message = cur.Phase, cur.Reason, cur.Message
	}
	return next
}

// WithForeign returns the agent's conditions in computed and the conditions of other components in stored.
func WithForeign(computed, stored []corev1.PodCondition) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range computed {
		if ours(c.Type) || c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonTerminationByKubelet {
			out = append(out, c)
		}
	}
	for _, c := range stored {
		if !ours(c.Type) && Condition(out, c.Type) == nil {
			out = append(out, c)
		}
	}
	return out
}

func ours(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReady,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	}
	return false
}
