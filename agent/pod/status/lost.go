package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A container whose end nobody saw has upstream's reason and exit code.
const (
	lostReason   = "ContainerStatusUnknown"
	lostExitCode = 137
	lostMessage  = "The container was gone before its end could be seen"
	neverRan     = "The pod ended before the container started"
)

// lost is the end of a container nobody saw end. It has no times: none is known.
func lost(id, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: lostReason, ExitCode: lostExitCode, ContainerID: id, Message: message}
}

// Lose records that an instance is gone and nobody saw how it ended.
func (c *Container) Lose(at time.Time) {
	if c.State == Exited {
		return
	}
	c.State, c.FinishedAt = Exited, at
	c.ExitCode, c.Reason, c.Message = lostExitCode, lostReason, lostMessage
}

// conclude ends the containers that never ran, of a pod that has ended: nothing waits
// any more. As upstream, where some init containers had an instance and not all got
// through, those whose turn did not come keep waiting.
func (in *Input) conclude(out *corev1.PodStatus) {
	inits := out.InitContainerStatuses
	reached := len(inits)
	for reached > 0 && !evident(&inits[reached-1]) {
		reached--
	}
	if reached > 0 && in.initialized(out) != initDone {
		concludeAll(inits[:reached])
	} else {
		concludeAll(inits)
		concludeAll(out.ContainerStatuses)
	}
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

// evident says whether there was an instance of a container, as there is none of one
// that only waited.
func evident(s *corev1.ContainerStatus) bool {
	return s.ContainerID != "" || s.State.Running != nil || s.LastTerminationState.Terminated != nil
}
