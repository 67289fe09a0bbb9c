package why_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/why"
)

func TestHealthOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	pod := func(phase corev1.PodPhase, ready corev1.ConditionStatus, since time.Duration,
		c corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: phase,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: ago(since)}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: c}}}}
	}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	deployment := func(ready, updated int32, c appsv1.DeploymentCondition) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}, Status: appsv1.DeploymentStatus{
			Replicas: 2, ReadyReplicas: ready, UpdatedReplicas: updated, Conditions: []appsv1.DeploymentCondition{c}}}
	}
	deleted := pod(corev1.PodRunning, corev1.ConditionTrue, 0, corev1.ContainerState{})
	deleted.DeletionTimestamp = new(ago(3 * time.Minute))
	node := func(of corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: of, Status: status,
			Reason: "R"}}}}
	}
	custom := func(kind, status string) client.Object {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": kind, "status": status, "reason": "NoLicense"}}}}}
	}
	for name, c := range map[string]struct {
		object client.Object
		want   why.Health
	}{
		"a pod that is ready": {pod("Running", "True", time.Hour, corev1.ContainerState{}), why.Health{}},
		"a pod that starts": {pod("Pending", "False", 2*time.Second, waiting("ContainerCreating")),
			why.Health{State: "wait", Reason: "not ready"}},
		"a pod that does not start": {pod("Pending", "False", 5*time.Minute, waiting("ContainerCreating")),
			why.Health{State: "bad", Reason: "not ready for 5m"}},
		"a pod that crashes": {pod("Running", "False", time.Second, waiting("CrashLoopBackOff")),
			why.Health{State: "bad", Reason: "container c, CrashLoopBackOff"}},
		"a pod whose container has just failed": {pod("Running", "False", time.Second, corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}), why.Health{State: "bad", Reason: "container c, exit code 3"}},
		"a pod that has ended": {pod("Succeeded", "False", time.Hour, corev1.ContainerState{}), why.Health{}},
		"a pod that was killed": {&corev1.Pod{Status: corev1.PodStatus{Phase: "Failed", Reason: "Evicted"}},
			why.Health{State: "bad", Reason: "Evicted"}},
		"a pod without a node": {&corev1.Pod{Status: corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{{
			Type: "PodScheduled", Status: "False", Reason: "Unschedulable"}}}}, why.Health{State: "bad", Reason: "Unschedulable"}},
		"a pod that does not end": {deleted, why.Health{State: "bad", Reason: "terminating for 3m"}},
		"a rollout that is stuck": {deployment(2, 1, appsv1.DeploymentCondition{Type: "Progressing", Status: "False",
			Reason: "ProgressDeadlineExceeded"}), why.Health{State: "bad", Reason: "ProgressDeadlineExceeded"}},
		"a rollout": {deployment(2, 1, appsv1.DeploymentCondition{Type: "Progressing", Status: "True"}),
			why.Health{State: "wait", Reason: "1 of 2 updated"}},
		"a Deployment with one of two": {deployment(1, 2, appsv1.DeploymentCondition{Type: "Available", Status: "False",
			LastTransitionTime: ago(time.Hour)}), why.Health{State: "wait", Reason: "1 of 2 ready"}},
		"a Deployment with none": {deployment(0, 2, appsv1.DeploymentCondition{Type: "Available", Status: "False",
			LastTransitionTime: ago(time.Hour)}), why.Health{State: "bad", Reason: "0 of 2 ready for 60m"}},
		"a Deployment that is complete": {deployment(2, 2, appsv1.DeploymentCondition{Type: "Available", Status: "True"}),
			why.Health{}},
		"a StatefulSet that starts": {&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(time.Second)}},
			why.Health{State: "wait", Reason: "0 of 1 ready"}},
		"a Job that failed": {&batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: "Failed",
			Status: "True", Reason: "BackoffLimitExceeded"}}}}, why.Health{State: "bad", Reason: "BackoffLimitExceeded"}},
		"a claim that waits": {&corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: "Pending"}},
			why.Health{State: "wait", Reason: "not bound"}},
		"a node that is not ready": {node("Ready", "Unknown"), why.Health{State: "bad", Reason: "R"}},
		"a full node":              {node("DiskPressure", "True"), why.Health{State: "bad", Reason: "DiskPressure"}},
		"a node that is well":      {node("Ready", "True"), why.Health{}},
		"a custom object":          {custom("Ready", "False"), why.Health{State: "bad", Reason: "Ready: NoLicense"}},
		"a custom condition that is bad when it is true": {custom("Stalled", "False"), why.Health{}},
	} {
		if got := why.HealthOf(c.object, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
