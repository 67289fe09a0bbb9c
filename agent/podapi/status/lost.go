package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Upstream's reason and exit code of a container whose end was not observed.
const (
	lostReason   = "ContainerStatusUnknown"
	lostExitCode = 137
	lostMessage  = "The container was gone before its end could be seen"
	neverRan     = "The pod ended before the container started"
)

// lost returns the state of a container whose end was not observed, without times.
func lost(id, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: lostReason, ExitCode: lostExitCode, ContainerID: id, Message: message}
}

// MarkLost records that an instance is gone and its end was not observed.
func (c *Container) MarkLost(at time.Time) {
	if c.State == Exited {
		return
	}
	c.State, c.FinishedAt = Exited, at
	c.ExitCode, c.Reason, c.Message = lostExitCode, lostReason, lostMessage
}

// conclude sets the containers of a terminated pod that never ran to terminated. Like upstream, before the pod is
// initialized its containers stay waiting, and so do the init containers after the last one that had an instance; the
// first init container is terminated in any case.
func (in *Input) conclude(out *corev1.PodStatus) {
	inits := out.InitContainerStatuses
	if in.initialized(out) == initDone {
		concludeAll(inits)
		concludeAll(out.ContainerStatuses)
		return
	}
	reached := len(inits)
	for reached > 1 && !hadInstance(&inits[reached-1]) {
		reached--
	}
	concludeAll(inits[:reached])
}

func concludeAll(list []corev1.ContainerStatus) {
	for i := range list {
		conclude(&list[i])
	}
}

func conclude(s *corev1.ContainerStatus) {
	if s.State.Terminated == nil {
		s.State = corev1.ContainerState{Terminated: lost(s.ContainerID, neverRan)}
		s.Ready, s.Started = false, new(false)
	}
}

// hadInstance reports whether a container had an instance, and did not only wait.
func hadInstance(s *corev1.ContainerStatus) bool {
	return s.ContainerID != "" || s.State.Running != nil || s.LastTerminationState.Terminated != nil
}
