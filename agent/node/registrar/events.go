package registrar

import corev1 "k8s.io/api/core/v1"

// transitions are the reasons of the Events about a condition that becomes True (yes) or no longer is (no).
var transitions = []struct {
	condition corev1.NodeConditionType
	yes, no   string
}{
	{corev1.NodeMemoryPressure, "NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
	{corev1.NodeDiskPressure, "NodeHasDiskPressure", "NodeHasNoDiskPressure"},
	{corev1.NodePIDPressure, "NodeHasInsufficientPID", "NodeHasSufficientPID"},
	{corev1.NodeReady, "NodeReady", "NodeNotReady"},
}

// recordConditionEvents records upstream's Events about conditions that are new or have changed.
func (r *Registrar) recordConditionEvents(before, after *corev1.NodeStatus) {
	for _, t := range transitions {
		was, is := findCondition(before.Conditions, t.condition), findCondition(after.Conditions, t.condition)
		if is == nil || was != nil && was.Status == is.Status {
			continue
		}
		reason := t.no
		if is.Status == corev1.ConditionTrue {
			reason = t.yes
		}
		r.recordStatusEvent(reason)
	}
}

// setStored stores the node as last read or written, and records upstream's Events about the start, and if it was
// cordoned or uncordoned.
func (r *Registrar) setStored(node *corev1.Node) {
	r.mu.Lock()
	before := r.stored
	r.stored = node
	r.mu.Unlock()
	if before == nil {
		r.Event(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	}
	if before == nil || before.UID != node.UID || before.Spec.Unschedulable == node.Spec.Unschedulable {
		return
	}
	reason := "NodeSchedulable"
	if node.Spec.Unschedulable {
		reason = "NodeNotSchedulable"
	}
	r.recordStatusEvent(reason)
}

func (r *Registrar) recordStatusEvent(reason string) {
	r.Event(corev1.EventTypeNormal, reason, "Node %s status is now: %s", r.cfg.NodeName, reason)
}
