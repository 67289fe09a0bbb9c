package registrar

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEvents checks that each change of the node emits one event.
func TestEvents(t *testing.T) {
	t.Parallel()
	status := func(ready, memory, disk, pid corev1.ConditionStatus) corev1.NodeStatus {
		return corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready}, {Type: corev1.NodeMemoryPressure, Status: memory},
			{Type: corev1.NodeDiskPressure, Status: disk}, {Type: corev1.NodePIDPressure, Status: pid},
		}}
	}
	const no, yes, unknown = corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown
	a := &away{}
	r := &Registrar{Deps: Deps{Recorder: a}, cfg: Config{NodeName: "n1"}}
	last := corev1.NodeStatus{}
	for _, step := range []struct {
		uid      types.UID
		cordoned bool
		status   corev1.NodeStatus
		want     []string
	}{
		{"a", false, status(no, no, no, no), []string{"Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure",
			"NodeHasSufficientPID", "NodeNotReady"}},
		{"a", false, status(yes, no, no, no), []string{"NodeReady"}},
		{"a", false, status(yes, no, no, no), nil},
		{"a", true, status(yes, yes, yes, yes),
			[]string{"NodeNotSchedulable", "NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID"}},
		{"a", true, status(unknown, yes, yes, yes), []string{"NodeNotReady"}},
		{"a", false, status(yes, yes, yes, yes), []string{"NodeSchedulable", "NodeReady"}},
		{"b", true, status(yes, yes, yes, yes), nil}, // another node object with the same name
	} {
		a.reasons = nil
		node := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: step.cordoned}, Status: step.status}
		node.UID = step.uid
		r.setStored(node)
		r.recordConditionEvents(&last, &step.status)
		if last = step.status; !slices.Equal(a.reasons, step.want) {
			t.Errorf("events %v, want %v", a.reasons, step.want)
		}
	}
}
