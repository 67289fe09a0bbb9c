package registrar

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stamp sets the times of conditions: now as the heartbeat and, for changed ones, as the transition time.
func stamp(next, cur *corev1.NodeStatus, now time.Time) {
	for i := range next.Conditions {
		c := &next.Conditions[i]
		c.LastHeartbeatTime = metav1.NewTime(now.Truncate(time.Second))
		c.LastTransitionTime = c.LastHeartbeatTime
		if old := findCondition(cur.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

// ownConditions are the conditions of Monopod that a node has only while they are true.
var ownConditions = []corev1.NodeConditionType{conditionCgroups, conditionRestored, conditionNetwork, ImagesNotImported,
	StaticPodsInvalid}

func foreignConditions(all, kubelet []corev1.NodeCondition) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, c := range all {
		if findCondition(kubelet, c.Type) == nil && !slices.Contains(ownConditions, c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// unchanged compares everything except heartbeats and conditions of other components.
func unchanged(stored, next *corev1.NodeStatus) bool {
	a, b := stored.DeepCopy(), next.DeepCopy()
	b.Conditions = append(b.Conditions, foreignConditions(a.Conditions, b.Conditions)...)
	b.VolumesAttached, b.VolumesInUse = a.VolumesAttached, a.VolumesInUse
	for _, s := range []*corev1.NodeStatus{a, b} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortFunc(s.Conditions, func(x, y corev1.NodeCondition) int { return cmp.Compare(x.Type, y.Type) })
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

func findCondition(list []corev1.NodeCondition, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}
