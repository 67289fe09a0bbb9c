package pod

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind/table"
)

// podNodeLost is the reason that upstream's node lifecycle controller sets in pods of an unresponsive node.
const podNodeLost = "NodeLost"

func podColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("Ready", "Ready containers, of main containers and sidecars.", func(p *corev1.Pod) string {
			s := summarizePod(p)
			return fmt.Sprintf("%d/%d", s.ready, s.total)
		}),
		table.Text("Status", "The state of the pod, or the reason why it does not run.", func(p *corev1.Pod) string {
			return summarizePod(p).reason
		}),
		table.Timed("Restarts", "Number of container restarts, and time since the last one.",
			func(p *corev1.Pod, now time.Time) string {
				s := summarizePod(p)
				return table.Ago(s.restarts, s.last, now)
			}),
		table.Age(),
		table.Text("IP", "First address.", func(p *corev1.Pod) string { return table.OrNone(podIP(p)) }).Wide(),
		table.Text("Node", "The node that the pod is bound to.",
			func(p *corev1.Pod) string { return table.OrNone(p.Spec.NodeName) }).Wide(),
		table.Text("Nominated Node", "The node on which the scheduler preempts pods for this one.",
			func(p *corev1.Pod) string { return table.OrNone(p.Status.NominatedNodeName) }).Wide(),
		table.Text("Readiness Gates", "Readiness gates whose condition is true, of all.", podGates).Wide(),
	}
}

// podGates counts the readiness gates whose condition is true.
func podGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return table.None
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if podConditionTrue(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

func podConditionTrue(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podSummary contains the values that kubectl get shows of a pod.
type podSummary struct {
	reason       string
	ready, total int // main containers and sidecars
	restarts     int
	last         time.Time // time of the last restart
}

// summarizePod reads the status as upstream's printer does: init containers first, and main containers when those are
// done.
func summarizePod(pod *corev1.Pod) podSummary {
	s := podSummary{reason: cmp.Or(pod.Status.Reason, string(pod.Status.Phase)), total: len(pod.Spec.Containers)}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars[pod.Spec.InitContainers[i].Name] = true
			s.total++
		}
	}
	initializing := s.addInit(pod, sidecars)
	if !initializing || podConditionTrue(pod, corev1.PodInitialized) {
		s.restarts, s.last = 0, time.Time{} // without those of init containers, except sidecars
		for i := range pod.Status.InitContainerStatuses {
			if c := &pod.Status.InitContainerStatuses[i]; sidecars[c.Name] {
				s.restarted(c)
			}
		}
		s.addMain(pod)
	}
	switch {
	case pod.DeletionTimestamp == nil:
	case pod.Status.Reason == podNodeLost:
		s.reason = "Unknown"
	case !podDone(pod):
		s.reason = "Terminating"
	}
	return s
}

// addInit adds the init containers up to the first that is not done, and reports whether there is one.
func (s *podSummary) addInit(pod *corev1.Pod, sidecars map[string]bool) bool {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.restarted(c)
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		if sidecars[c.Name] && c.Started != nil && *c.Started {
			if c.Ready {
				s.ready++
			}
			continue
		}
		s.reason = "Init:" + initReason(c, i, len(pod.Spec.InitContainers))
		return true
	}
	return false
}

// initReason returns the reason why an init container is not done, or its number.
func initReason(c *corev1.ContainerStatus, i, of int) string {
	switch w, t := c.State.Waiting, c.State.Terminated; {
	case t != nil:
		return endReason(t)
	case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
		return w.Reason
	}
	return fmt.Sprintf("%d/%d", i, of)
}

// endReason returns the reason why a container terminated.
func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// addMain adds the main containers. The first one that does not run determines the reason.
func (s *podSummary) addMain(pod *corev1.Pod) {
	running := false
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.restarted(c)
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			s.reason = state.Waiting.Reason
		case state.Terminated != nil:
			s.reason = endReason(state.Terminated)
		case c.Ready && state.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if podConditionTrue(pod, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

func (s *podSummary) restarted(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.last) {
		s.last = t.FinishedAt.Time
	}
}
