package status_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/pod/status"
)

func TestSame(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	full := func() *corev1.PodStatus {
		return &corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: now.DeepCopy(), PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
				AllocatedResources: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
			}},
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.PodStatus)
		same   bool
	}{
		"nothing":       {func(*corev1.PodStatus) {}, true},
		"empty is none": {func(s *corev1.PodStatus) { s.InitContainerStatuses = []corev1.ContainerStatus{} }, true},
		"same amount": {func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].AllocatedResources["cpu"] = resource.MustParse("1000m")
		}, true},
		"other zone": {func(s *corev1.PodStatus) { s.StartTime.Time = now.In(time.FixedZone("x", 3600)) }, true},
		"a message":  {func(s *corev1.PodStatus) { s.Message = "x" }, false},
		"a second":   {func(s *corev1.PodStatus) { s.StartTime.Time = now.Add(time.Second) }, false},
		"no address": {func(s *corev1.PodStatus) { s.PodIPs = nil }, false},
	} {
		other := full()
		tc.change(other)
		if status.Same(full(), other) != tc.same || status.Same(other, full()) != tc.same {
			t.Errorf("%s: not %v", name, tc.same)
		}
	}
}

func yes(string) bool { return true }
