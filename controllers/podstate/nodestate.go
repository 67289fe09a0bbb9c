package podstate

import corev1 "k8s.io/api/core/v1"

// ReadyStatus returns the status of the Ready condition; empty if there is none.
func ReadyStatus(n *corev1.Node) corev1.ConditionStatus {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return n.Status.Conditions[i].Status
		}
	}
	return ""
}

// NodeReady reports whether the Ready condition is True.
func NodeReady(n *corev1.Node) bool { return ReadyStatus(n) == corev1.ConditionTrue }
