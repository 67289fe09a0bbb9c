// Package nodestate contains helpers about the state of nodes.
package nodestate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ReadyStatus returns the status of the Ready condition; empty if there is none.
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

// Tolerates reports whether a toleration matches the taint: operator Exists or Equal; an empty key with Exists
// matches every taint, an empty effect every effect.
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		switch {
		case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
			return false
		case t.Operator == corev1.TolerationOpExists:
			return true
		case t.Operator == "" || t.Operator == corev1.TolerationOpEqual:
			return t.Key != "" && t.Value == taint.Value
		}
		return false
	})
}
