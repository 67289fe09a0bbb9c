package status_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
)

// TestMessagesShareTheirLimit checks that each of four containers has 3 KiB for its message, and that the truncation
// keeps whole characters.
func TestMessagesShareTheirLimit(t *testing.T) {
	t.Parallel()
	pod, seen := &corev1.Pod{}, &status.Observed{}
	for _, name := range []string{"a", "b", "c", "d"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		seen.Containers = append(seen.Containers,
			status.Container{ID: name, Name: name, State: status.Exited, Message: strings.Repeat("€", 1365)})
	}
	out := status.Of(status.Input{Pod: pod, Observed: seen, Now: time.Now()})
	for _, c := range out.ContainerStatuses {
		if want := strings.Repeat("€", 1024); c.State.Terminated.Message != want {
			t.Errorf("%s: the message has %d bytes, want 3072", c.Name, len(c.State.Terminated.Message))
		}
	}
}
