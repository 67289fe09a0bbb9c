package registrar

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(t corev1.NodeConditionType, s corev1.ConditionStatus, at time.Time) corev1.NodeCondition {
	return corev1.NodeCondition{Type: t, Status: s, LastHeartbeatTime: metav1.NewTime(at),
		LastTransitionTime: metav1.NewTime(at)}
}

func TestTransitionTimesAreKept(t *testing.T) {
	t.Parallel()
	before := time.Unix(1000, 0)
	now := before.Add(time.Minute)
	cur := corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, before),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, before),
	}}
	next := corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
	}}
	stamp(&next, &cur, now)
	for i, want := range []time.Time{before, now} {
		c := next.Conditions[i]
		if !c.LastTransitionTime.Time.Equal(want) || !c.LastHeartbeatTime.Time.Equal(now) {
			t.Errorf("%s: transition %v, heartbeat %v", c.Type, c.LastTransitionTime, c.LastHeartbeatTime)
		}
	}
}

func TestWritesOnlyRelevantChanges(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	stored := corev1.NodeStatus{
		VolumesInUse: []corev1.UniqueVolumeName{"v"},
		Conditions: []corev1.NodeCondition{condition("Others", corev1.ConditionTrue, at),
			condition(corev1.NodeReady, corev1.ConditionTrue, at)},
	}
	for name, c := range map[string]struct {
		change func(*corev1.NodeStatus)
		same   bool
	}{
		"a heartbeat": {func(s *corev1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.NewTime(at.Add(time.Hour)) },
			true},
		"a condition": {func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionFalse }, false},
		"an image":    {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{{Names: []string{"a"}}} }, false},
		"cgroup problem": {func(s *corev1.NodeStatus) {
			s.Conditions = append(s.Conditions, condition(conditionCgroups, corev1.ConditionTrue, at))
		}, false},
	} {
		next := corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, at)}}
		c.change(&next)
		if unchanged(&stored, &next) != c.same {
			t.Errorf("%s: unchanged is %v", name, !c.same)
		}
	}
	gone := stored.DeepCopy()
	gone.Conditions = append(gone.Conditions, condition(conditionRestored, corev1.ConditionTrue, at))
	if next := (corev1.NodeStatus{Conditions: stored.Conditions[1:]}); unchanged(gone, &next) {
		t.Error("the status counts as unchanged although a condition of the agent no longer applies")
	}
}
