// Package nodestate answers what controllers ask about a node.
package nodestate

import corev1 "k8s.io/api/core/v1"

// ReadyStatus is the status of the Ready condition; empty when there is none.
func ReadyStatus(n *corev1.Node) corev1.ConditionStatus {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return n.Status.Conditions[i].Status
		}
	}
	return ""
}

// Ready reports whether the Ready condition is True.
func Ready(n *corev1.Node) bool { return ReadyStatus(n) == corev1.ConditionTrue }
