package status

import corev1 "k8s.io/api/core/v1"

// tally counts what the regular containers are at.
type tally struct{ running, waiting, stopped, succeeded int }

// count looks at what has ended too, where it waits to start again; one that is
// removed so that all may start anew has not.
func (in *Input) count(list []corev1.ContainerStatus) tally {
	var t tally
	renewed := !in.Terminal && mayRestartAll(in.Pod)
	for i := range list {
		s := &list[i]
		ended := end(s)
		switch {
		case s.State.Running != nil:
			t.running++
		case renewed && s.State.Waiting != nil && in.Seen.Latest(s.Name) == nil:
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

// phase follows upstream's getPhase: init containers first, then what the others
// are at, under the restart policy.
func (in *Input) phase(s *corev1.PodStatus) corev1.PodPhase {
	t := in.count(s.ContainerStatuses)
	if in.Terminal {
		if t.stopped == t.succeeded && t.waiting == 0 && t.stopped > 0 {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	if RestartsAll(in.Pod, in.Seen) != nil {
		return duringRestart(t)
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

// duringRestart is the phase while all containers are to start anew: no end is
// final.
func duringRestart(t tally) corev1.PodPhase {
	if t.running+t.stopped > 0 {
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// stoppedPhase is the phase of a pod none of whose containers runs.
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

// end is how a container ended that does not run; nil: it has not.
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

// initialized says how far the init containers are. Once a regular container has
// run they are done, whatever the runtime still knows of them.
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
		if s := &list[i]; evident(s) && (s.State.Running != nil || s.State.Terminated != nil) {
			return true
		}
	}
	return false
}
