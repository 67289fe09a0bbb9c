package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxMessages is the maximum total size of a pod's termination messages, in bytes. The containers share it evenly
// (upstream: 12 KiB).
const maxMessages = 12 << 10

// clipMessages truncates each termination message to its container's share.
func clipMessages(pod *corev1.Pod, s *corev1.PodStatus) {
	n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
	share := maxMessages / max(n, 1)
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for i := range list {
			clip(&list[i].State, share)
			clip(&list[i].LastTerminationState, share)
		}
	}
}

func clip(s *corev1.ContainerState, share int) {
	if t := s.Terminated; t != nil && len(t.Message) > share {
		cut := *t
		cut.Message = strings.ToValidUTF8(t.Message[:share], "")
		s.Terminated = &cut
	}
}
