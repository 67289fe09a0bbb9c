package nodelifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition describes the taint of nodes whose condition has this status.
type condition struct {
	is     corev1.NodeConditionType
	status corev1.ConditionStatus
	taint  string
}

// conditions returns upstream's conditions and taints. A missing Ready condition counts as not ready.
func conditions() []condition {
	return []condition{
		{corev1.NodeReady, "", corev1.TaintNodeNotReady},
		{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
		{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
		{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
		{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
		{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
		{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
	}
}

// requiredTaints returns the keys of the NoSchedule taints for the node's state.
func requiredTaints(n *corev1.Node) []string {
	var out []string
	for _, c := range conditions() {
		if statusOf(n, c.is) == c.status {
			out = append(out, c.taint)
		}
	}
	if n.Spec.Unschedulable {
		out = append(out, corev1.TaintNodeUnschedulable)
	}
	return out
}

// statusOf returns the status of a condition; empty if there is none.
func statusOf(n *corev1.Node, is corev1.NodeConditionType) corev1.ConditionStatus {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == is {
			return n.Status.Conditions[i].Status
		}
	}
	return ""
}

// managed reports whether this controller manages the taint.
func managed(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule && (t.Key == corev1.TaintNodeUnschedulable ||
		slices.ContainsFunc(conditions(), func(c condition) bool { return c.taint == t.Key }))
}

// taintsFor returns the node's taints, in which those that this controller manages match the node's state.
func taintsFor(n *corev1.Node, now metav1.Time) (taints []corev1.Taint, changed bool) {
	missing := requiredTaints(n)
	for _, t := range n.Spec.Taints {
		at := slices.Index(missing, t.Key)
		switch {
		case !managed(t):
		case at < 0:
			changed = true
			continue
		default:
			missing = slices.Delete(missing, at, at+1)
		}
		taints = append(taints, t)
	}
	for _, key := range missing {
		changed = true
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
	}
	return taints, changed
}
