package podstate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// victim is a running pod on the node n, created and ready an hour ago; change may modify it.
func victim(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
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
func on(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = node }
}
func phase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}
func cost(v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: v} }
}
func restarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func aged(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
}
func sidecarRestarts(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "s", RestartCount: n}}
	}
}

// Each case begins with the number of its rule. The first pod is deleted before the second, even if later rules prefer
// the second.
func TestVictimOrder(t *testing.T) {
	t.Parallel()
	perNode := map[string]int{"n": 1, "busy": 5}
	for name, c := range map[string]struct{ first, second *corev1.Pod }{
		"1 unassigned before assigned": {victim("z", on(""), cost("100")), victim("a", phase(corev1.PodPending), notReady)},
		"2 pending before unknown": {victim("z", phase(corev1.PodPending), cost("9")),
			victim("a", phase(corev1.PodUnknown), notReady)},
		"2 unknown before running":         {victim("z", phase(corev1.PodUnknown), cost("9")), victim("a", notReady)},
		"3 not ready before ready":         {victim("z", notReady, cost("9")), victim("a", cost("-9"))},
		"4 lower cost first":               {victim("z", cost("-1")), victim("a", on("busy"))},
		"4 cost that is not a number is 0": {victim("z", cost("-1")), victim("a", cost("many"))},
		"5 fuller node first":              {victim("z", on("busy")), victim("a", readyFor(time.Minute))},
		"6 ready shorter first":            {victim("z", readyFor(time.Minute)), victim("a", restarts(9))},
		"6 a tie by magnitude goes to UID": {victim("a", readyFor(time.Hour)), victim("z", readyFor(59*time.Minute),
			restarts(9))},
		"7 more restarts first":            {victim("z", restarts(2)), victim("a", restarts(1), aged(time.Minute))},
		"7 more sidecar restarts first":    {victim("z", sidecarRestarts(2)), victim("a", sidecarRestarts(1))},
		"7 the app's restarts count first": {victim("z", restarts(1)), victim("a", sidecarRestarts(5))},
		"7 among pods that are not ready":  {victim("z", notReady, restarts(2)), victim("a", notReady, aged(time.Second))},
		"8 newer first":                    {victim("z", aged(time.Minute)), victim("a")},
		"8 magnitudes tie, UID decides":    {victim("a"), victim("z", aged(59*time.Minute))},
		"6 no ready time is the shortest": {victim("z",
			func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Time{} }),
			victim("a", readyFor(time.Minute))},
		"a clock that went back does not panic": {victim("z", readyFor(-time.Hour)), victim("a")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Rank([]*corev1.Pod{c.second, c.first}, perNode, now); got[0] != c.first {
				t.Errorf("%s is deleted before %s", got[0].Name, got[1].Name)
			}
			if got := Rank([]*corev1.Pod{c.first, c.second}, perNode, now); got[0] != c.first {
				t.Error("the order depends on the order of the input")
			}
		})
	}
}

func TestRankDoesNotChangeItsInput(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{victim("a"), victim("b", notReady)}
	Rank(pods, nil, now)
	if pods[0].Name != "a" {
		t.Error("Rank changed the order of its input")
	}
}
