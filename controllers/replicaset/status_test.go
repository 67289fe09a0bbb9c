package replicaset

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/podstate"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// victim is a running pod that has been ready for an hour; change may modify it.
func victim(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	readyFor(time.Hour)(p)
	for _, f := range change {
		f(p)
	}
	return p
}

func readyFor(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now.Add(-d))}}
	}
}

func notReady(p *corev1.Pod) { p.Status.Conditions = nil }

func TestStatus(t *testing.T) {
	t.Parallel()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32(4)), MinReadySeconds: 600,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}},
	}}
	full := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x", "more": "y"} }
	pods := []*corev1.Pod{victim("a", full), victim("b", full, readyFor(9*time.Minute)), victim("c", notReady),
		victim("d", readyFor(8*time.Minute))}
	s := statusOf(rs, pods, pods[:1], errors.New("quota"), now)
	if s.Replicas != 4 || s.FullyLabeledReplicas != 2 || s.ReadyReplicas != 3 || s.AvailableReplicas != 1 ||
		*s.TerminatingReplicas != 1 || s.ObservedGeneration != 7 {
		t.Errorf("status %+v", s)
	}
	if len(s.Conditions) != 1 || s.Conditions[0].Reason != "FailedCreate" || s.Conditions[0].Message != "quota" {
		t.Errorf("conditions %+v", s.Conditions)
	}
	if d := podstate.NextAvailable(pods, 600, now); d != time.Minute {
		t.Errorf("next available in %v, want a minute", d)
	}
	rs.Status = s
	if again := statusOf(rs, pods, nil, errors.New("quota, still"),
		now.Add(time.Hour)); again.Conditions[0] != s.Conditions[0] {
		t.Error("the condition changed although its reason did not")
	}
	if healed := statusOf(rs, pods, nil, nil, now); len(healed.Conditions) != 0 {
		t.Errorf("conditions after recovery: %+v", healed.Conditions)
	}
}
