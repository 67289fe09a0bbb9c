package status

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions returns the agent's conditions, in upstream's order, then those of other components. The transition time
// of a condition changes only with its status.
func (in *Input) conditions(s *corev1.PodStatus) []corev1.PodCondition {
	computed := []corev1.PodCondition{
		in.readyToStart(), in.initializedCondition(s), in.podReady(s), in.containersReady(s), in.scheduled(),
	}
	if mayRestartAll(in.Pod) {
		computed = append(computed, in.allRestarting(s))
	}
	if r := in.Resize; r != nil {
		computed = append(computed,
			corev1.PodCondition{Type: r.Type, Status: corev1.ConditionTrue, Reason: r.Reason, Message: r.Message})
	}
	if f := in.Failure; f != nil && f.Disruption != "" {
		computed = append(computed,
			corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: f.Disruption,
				Message: f.Message})
	}
	old := in.Pod.Status.Conditions
	out := make([]corev1.PodCondition, 0, len(old)+len(computed))
	for _, c := range computed {
		c.ObservedGeneration = in.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(seconds(in.Now).Time)
		if was := Condition(old, c.Type); was != nil {
			c.LastProbeTime = was.LastProbeTime
			if was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
		out = append(out, c)
	}
	for _, c := range old {
		if Condition(computed, c.Type) == nil && c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			out = append(out, c)
		}
	}
	return out
}

// allRestarting returns the condition that is true from the exit of the triggering container until all containers are
// removed.
func (in *Input) allRestarting(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.AllContainersRestarting, Status: corev1.ConditionFalse}
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case RestartsAll(in.Pod, in.Observed) != nil:
		c.Status, c.Reason = corev1.ConditionTrue, "RestartAllContainersStarted"
		c.Message = "container exited with restart policy rule"
	}
	return c
}

// Condition returns the condition of a type; nil if it does not exist.
func Condition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func (in *Input) scheduled() corev1.PodCondition {
	if old := Condition(in.Pod.Status.Conditions, corev1.PodScheduled); old != nil && old.Status == corev1.ConditionTrue {
		return *old
	}
	return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
}

func (in *Input) readyToStart() corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	if s := in.Observed.Sandbox(); s != nil && s.Ready && !in.Terminal {
		c.Status = corev1.ConditionTrue
	}
	return c
}

func (in *Input) initializedCondition(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if s.Phase == corev1.PodSucceeded {
		c.Reason = "PodCompleted"
		return c
	}
	if in.initialized(s) == initDone {
		return c
	}
	var missing []string
	for i, st := range s.InitContainerStatuses {
		if !st.Ready || Sidecar(&in.Pod.Spec.InitContainers[i]) && (st.Started == nil || !*st.Started) {
			missing = append(missing, st.Name)
		}
	}
	c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
	c.Message = fmt.Sprintf("containers with incomplete status: %v", missing)
	return c
}

func (in *Input) containersReady(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = "PodCompleted"
		return c
	case corev1.PodFailed:
		c.Reason = "PodFailed"
		return c
	}
	var unready []string
	for i, st := range s.InitContainerStatuses {
		if Sidecar(&in.Pod.Spec.InitContainers[i]) && !st.Ready {
			unready = append(unready, st.Name)
		}
	}
	for _, st := range s.ContainerStatuses {
		if !st.Ready {
			unready = append(unready, st.Name)
		}
	}
	if len(unready) > 0 {
		c.Reason, c.Message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// podReady returns the condition Ready: ContainersReady and every readiness gate are true.
func (in *Input) podReady(s *corev1.PodStatus) corev1.PodCondition {
	c := in.containersReady(s)
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var unready []string
	for _, gate := range in.Pod.Spec.ReadinessGates {
		switch g := Condition(in.Pod.Status.Conditions, gate.ConditionType); {
		case g == nil:
			unready = append(unready,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case g.Status != corev1.ConditionTrue:
			unready = append(unready,
				fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, g.Status))
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unready, ", ")
	}
	return c
}
