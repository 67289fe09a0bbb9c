package status

import corev1 "k8s.io/api/core/v1"

// tally counts the states of the regular containers.
type tally struct{ running, waiting, stopped, succeeded int }

// count counts the states of containers. A container that waits to restart counts by its last exit, unless it was
// removed to restart all containers.
func (in *Input) count(list []corev1.ContainerStatus) tally {
	var t tally
	renewed := !in.Terminal && mayRestartAll(in.Pod)
	for i := range list {
		s := &list[i]
		ended := end(s)
		switch {
		case s.State.Running != nil:
			t.running++
		case renewed && s.State.Waiting != nil && in.Observed.Latest(s.Name) == nil:
			t.waiting++
		case ended != nil:
			t.stopped++
			if ended.ExitCode == 0 {
				t.succeeded++
			}
		default:
			t.waiting++
		}
	}
	return t
}

// phase computes the phase like upstream's getPhase: by the init containers first, then by the states of the others and
// the restart policy.
func (in *Input) phase(s *corev1.PodStatus) corev1.PodPhase {
	t := in.count(s.ContainerStatuses)
	if in.Terminal {
		if t.stopped == t.succeeded && t.waiting == 0 && t.stopped > 0 {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	if RestartsAll(in.Pod, in.Observed) != nil { // no exit is final
		if t.running+t.stopped > 0 {
			return corev1.PodRunning
		}
		return corev1.PodPending
	}
	switch in.initialized(s) {
	case initFailed:
		return corev1.PodFailed
	case initPending:
		return corev1.PodPending
	}
	switch {
	case t.waiting > 0:
		return corev1.PodPending
	case t.running > 0:
		return corev1.PodRunning
	case t.stopped > 0:
		return in.stoppedPhase(s, t)
	}
	return corev1.PodPending
}

// stoppedPhase returns the phase of a pod without running containers.
func (in *Input) stoppedPhase(s *corev1.PodStatus, t tally) corev1.PodPhase {
	for i := range s.ContainerStatuses {
		ended := end(&s.ContainerStatuses[i])
		if ended != nil && Restarts(in.Pod, &in.Pod.Spec.Containers[i], ended.ExitCode) {
			return corev1.PodRunning
		}
	}
	if t.stopped == t.succeeded {
		return corev1.PodSucceeded
	}
	return corev1.PodFailed
}

// end returns the last exit of a container that does not run; nil: none.
func end(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated == nil && s.State.Waiting != nil {
		return s.LastTerminationState.Terminated
	}
	return s.State.Terminated
}

type initState int

const (
	initDone initState = iota
	initPending
	initFailed
)

// initialized returns the progress of the init containers. Once a regular container has run, they are finished, even if
// the runtime no longer has them.
func (in *Input) initialized(s *corev1.PodStatus) initState {
	if len(s.InitContainerStatuses) == 0 || ranBefore(s.ContainerStatuses) {
		return initDone
	}
	for i := range s.InitContainerStatuses {
		st := &s.InitContainerStatuses[i]
		if Sidecar(&in.Pod.Spec.InitContainers[i]) {
			if st.Started == nil || !*st.Started {
				return initPending
			}
			continue
		}
		switch ended := st.State.Terminated; {
		case ended == nil:
			return initPending
		case ended.ExitCode == 0:
		case Restarts(in.Pod, &in.Pod.Spec.InitContainers[i], ended.ExitCode):
			return initPending
		default:
			return initFailed
		}
	}
	return initDone
}

func ranBefore(list []corev1.ContainerStatus) bool {
	for i := range list {
		if s := &list[i]; hadInstance(s) && (s.State.Running != nil || s.State.Terminated != nil) {
			return true
		}
	}
	return false
}
