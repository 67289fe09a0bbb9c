package status

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func node(ready corev1.ConditionStatus, more ...corev1.NodeCondition) corev1.Node {
	conditions := append(
		[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "R", Message: "m."},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}, more...)
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func pod(name, waiting string, phase corev1.PodPhase) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: "box"},
		Status: corev1.PodStatus{Phase: phase}}
	if waiting != "" {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: waiting}}}}
	}
	return p
}

// Each problem is one sentence. Only some problems make the server not ready.
func TestOf(t *testing.T) {
	t.Parallel()
	good := func() Facts {
		return Facts{Health: "[+]ping ok\nreadyz check passed\n", Nodes: []corev1.Node{node(corev1.ConditionTrue)}, Now: now,
			Certificates: []auth.Certificate{{Name: "server", NotAfter: now.AddDate(1, 0, 0)}}}
	}
	for name, c := range map[string]struct {
		change   func(*Facts)
		notReady bool
		warnings []string
	}{
		"all is well": {func(*Facts) {}, false, nil},
		"a failed check": {func(f *Facts) {
			f.Health = "[+]ping ok\n[-]state failed: disk full\n" +
				"readyz check failed\n"
		}, true, []string{"The check state failed: disk full."}},
		"a degraded check": {func(f *Facts) { f.Health = "[!]network degraded: no rules\n" }, false,
			[]string{"The check network degraded: no rules."}},
		"no node":               {func(f *Facts) { f.Nodes = nil }, true, []string{"No node is registered yet."}},
		"no node, runtime none": {func(f *Facts) { f.Nodes, f.Process.Runtime = nil, "none" }, false, nil},
		"a node that is not ready": {func(f *Facts) { f.Nodes = []corev1.Node{node(corev1.ConditionFalse)} }, true,
			[]string{"Node box is not ready: m (R). Ask: monopod why node/box"}},
		"pressure": {func(f *Facts) {
			f.Nodes = []corev1.Node{node(corev1.ConditionTrue, corev1.NodeCondition{Type: corev1.NodeMemoryPressure,
				Status: corev1.ConditionTrue, Reason: "Low"})}
		}, false, []string{"Node box has the condition MemoryPressure: Low."}},
		"a cordoned node": {func(f *Facts) { f.Nodes[0].Spec.Unschedulable = true }, false,
			[]string{"Node box takes no new pods: kubectl uncordon box"}},
		"a full disk": {func(f *Facts) {
			f.Process.DataDir = "/d"
			f.Process.Disk = &Disk{Free: 1 << 20, Total: 1 << 30}
		}, false, []string{"Only 1.0 MiB of 1.0 GiB are free for /d."}},
		"a disk with space": {func(f *Facts) { f.Process.Disk = &Disk{Free: 1 << 29, Total: 1 << 30} }, false, nil},
		"certificates": {func(f *Facts) {
			f.Certificates = []auth.Certificate{{Name: "server", NotAfter: now.Add(time.Hour)}, {Name: "admin", NotAfter: now}}
		}, false, []string{"The certificate server expires on 2026-11-24: monopod certs rotate",
			"The certificate admin expired on 2026-11-24: monopod certs rotate"}},
		"pods": {func(f *Facts) {
			f.Pods = []corev1.Pod{pod("starts", "ContainerCreating", corev1.PodPending), pod("crashes", "CrashLoopBackOff",
				corev1.PodRunning), pod("over", "CrashLoopBackOff", corev1.PodFailed)}
		}, false, []string{"Pod default/crashes: container c, CrashLoopBackOff. Ask: monopod why pod/crashes -n default"}},
		"an unschedulable pod": {func(f *Facts) {
			p := pod("large", "", corev1.PodPending)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes"}}
			f.Pods = []corev1.Pod{p}
		}, false, []string{"Pod default/large: 0/1 nodes (Unschedulable). Ask: monopod why pod/large -n default"}},
	} {
		f := good()
		c.change(&f)
		got := Of(f)
		if got.Ready == c.notReady || !slices.Equal(got.Warnings, c.warnings) && len(got.Warnings)+len(c.warnings) > 0 {
			t.Errorf("%s: ready %t, %q, want %q", name, got.Ready, got.Warnings, c.warnings)
		}
	}
}

func TestManyPodsAreOneScreen(t *testing.T) {
	t.Parallel()
	f := Facts{Nodes: []corev1.Node{node(corev1.ConditionTrue)}}
	for n := range 12 {
		f.Pods = append(f.Pods, pod(fmt.Sprintf("p%02d", n), "ErrImagePull", corev1.PodPending))
	}
	got := Of(f)
	if len(got.Warnings) != maxPods+1 || !strings.HasPrefix(got.Warnings[maxPods], "7 pods more cannot run") ||
		got.Nodes[0].Pods != 12 || got.Pods["Pending"] != 12 {
		t.Errorf("%+v", got)
	}
}
