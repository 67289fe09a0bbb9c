package why

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// pod explains a pod by the first check that finds a cause.
func (f explanation) pod(p *corev1.Pod) Answer {
	for _, check := range []func(*corev1.Pod) *Answer{
		f.deleted, f.ended, f.unscheduled, f.nodeLost, f.unprepared, f.failing, f.starting, f.gated} {
		if a := check(p); a != nil {
			return *a
		}
	}
	return f.running(p)
}

// deleted explains a pod that is being deleted.
func (f explanation) deleted(p *corev1.Pod) *Answer {
	if p.DeletionTimestamp == nil {
		return nil
	}
	left := p.DeletionTimestamp.Sub(f.Now)
	evidence := []string{fmt.Sprintf("grace period: %ds, ends at %s", ptr.Deref(p.DeletionGracePeriodSeconds, 0),
		p.DeletionTimestamp.UTC().Format(time.RFC3339))}
	evidence = append(evidence, f.EventLines(f.EventsOf(p))...)
	running := names(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool { return s.State.Running != nil })
	target := facts.PodCondition(p, corev1.DisruptionTarget)
	switch {
	case f.notReady(p.Spec.NodeName) != nil:
		return found("Start the node again. If it is gone for good: kubectl delete pod "+p.Name+" --grace-period=0 --force",
			evidence,
			"Pod %s is being deleted, but its node %s does not respond, so that nothing stops its containers.", p.Name,
			p.Spec.NodeName)
	case len(running) == 0 && len(p.Finalizers) > 0:
		return f.terminating()
	case target != nil && target.Reason == corev1.PodReasonPreemptionByScheduler:
		return found("Give the pod a higher priorityClassName, or add resources to the node; "+
			"its owner creates a new pod, which waits until it fits.",
			append(evidence, "condition DisruptionTarget: "+words.Clip(target.Message)),
			"Pod %s is being deleted because a pod of higher priority needs its resources.", p.Name)
	case len(running) > 0 && left > 0:
		what := "the time to end after SIGTERM"
		if hook := preStop(p, running); hook != "" {
			what = "the time for the preStop hook of container " + hook + " and its end"
		}
		return found("Wait. A shorter terminationGracePeriodSeconds, or a program that ends on SIGTERM, makes it faster.",
			evidence,
			"Pod %s is being deleted: %s, and %s of %s are left.", p.Name, stillRun(running), words.Ago(left), what)
	case len(running) > 0:
		return found("Read the events of the pod and the log of monopod: the runtime does not end the container.", evidence,
			"Pod %s is being deleted: its grace period ended %s ago, and %s.", p.Name, words.Ago(-left), stillRun(running))
	}
	if a := f.notUnmounted(p, evidence); a != nil {
		return a
	}
	return found("Wait a moment; if it stays, a volume that fails to unmount or the runtime is the cause: "+
		"read the events and the log of monopod.", evidence,
		"Pod %s is being deleted: its containers have ended, and the node removes what it used.", p.Name)
}

// stillRun returns "container c still runs" or "containers a, b still run".
func stillRun(running []string) string {
	if len(running) == 1 {
		return "container " + running[0] + " still runs"
	}
	return words.List("container", running) + " still run"
}

// preStop returns the name of the first running container that has a preStop hook.
func preStop(p *corev1.Pod, running []string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && slices.Contains(running, c.Name) {
			return c.Name
		}
	}
	return ""
}

// ended explains a pod that has succeeded or failed.
func (f explanation) ended(p *corev1.Pod) *Answer {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return found("", f.ends(p), "Pod %s has completed: all its containers ended with exit code 0.", p.Name)
	case corev1.PodFailed:
	default:
		return nil
	}
	if sentence, do := End(p); sentence != "" {
		return found(do, append(f.ends(p), f.EventLines(f.Warnings(p))...), "Pod %s %s.", p.Name, sentence)
	}
	if a := f.failing(p); a != nil {
		return a
	}
	return found("Read its log: kubectl logs "+p.Name, append(f.ends(p), f.EventLines(f.Warnings(p))...),
		"Pod %s has failed.", p.Name)
}

// ends describes how the containers ended.
func (f explanation) ends(p *corev1.Pod) (lines []string) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil {
			lines = append(lines, fmt.Sprintf("container %s: %s", s.Name, words.End(t)))
		}
	}
	return lines
}

// nodeLost explains a pod whose node does not exist or is not ready.
func (f explanation) nodeLost(p *corev1.Pod) *Answer {
	switch gone := f.Lacks(client.Nodes, "", p.Spec.NodeName); {
	case gone && p.Status.Phase == corev1.PodRunning:
		return found(
			"Wait: the pod is deleted, and its owner creates another one; start the node again if its data are needed.", nil,
			"Pod %s ran on node %s, which no longer exists.", p.Name, p.Spec.NodeName)
	case gone:
		return found("Correct spec.nodeName and create the pod again (kubectl get nodes lists the names), "+
			"or start a node of this name; the scheduler chooses a node for a pod without nodeName.", nil,
			"Pod %s does not start: its node %s does not exist.", p.Name, p.Spec.NodeName)
	}
	ready := f.notReady(p.Spec.NodeName)
	if ready == nil {
		return nil
	}
	do := "Find out why with: monopod why node/" + p.Spec.NodeName
	return found(do,
		[]string{fmt.Sprintf("condition Ready of node %s is %s: %s", p.Spec.NodeName, ready.Status,
			words.Reason(ready.Reason, ready.Message))},
		"Pod %s is on node %s, which is not ready: %s.", p.Name, p.Spec.NodeName, words.Clip(ready.Message))
}

// notReady returns the condition Ready of a node, or nil if it is True or unknown.
func (f explanation) notReady(node string) *corev1.NodeCondition {
	n := facts.Related[*corev1.Node](f.Facts, "", node)
	if n == nil {
		return nil
	}
	if ready := nodeCondition(n, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionTrue {
		return ready
	}
	return nil
}

// gated explains a pod that waits for a readiness gate.
func (f explanation) gated(p *corev1.Pod) *Answer {
	ready := facts.PodCondition(p, corev1.PodReady)
	if ready == nil || ready.Reason != "ReadinessGatesNotReady" {
		return nil
	}
	return found("The controller of the gate sets this condition of the pod's status; check that it runs.",
		[]string{"condition Ready is False: " + words.Clip(ready.Message)},
		"Pod %s runs, but is not ready: a readiness gate is not True.", p.Name)
}

// running describes a pod for which no check finds a cause.
func (f explanation) running(p *corev1.Pod) Answer {
	var restarts int32
	evidence := []string{}
	for _, s := range p.Status.ContainerStatuses {
		restarts += s.RestartCount
		if t := s.LastTerminationState.Terminated; t != nil {
			evidence = append(evidence,
				fmt.Sprintf("container %s ended before%s: %s", s.Name, f.since(t.FinishedAt), words.End(t)))
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return answer("Wait; if it stays like this, read the events and the log of monopod.", f.EventLines(f.EventsOf(p)),
			"Pod %s has been starting on node %s for %s.", p.Name, p.Spec.NodeName,
			words.Ago(f.Now.Sub(p.CreationTimestamp.Time)))
	}
	if ready := facts.PodCondition(p, corev1.PodReady); ready != nil && ready.Status != corev1.ConditionTrue {
		return answer("Wait a moment; if it stays like this, read the events: kubectl describe pod "+p.Name,
			append(evidence, f.EventLines(f.EventsOf(p))...),
			"Pod %s runs, but is not ready: %s.", p.Name, words.Reason(ready.Reason, ready.Message))
	}
	if restarts > 0 {
		return answer("", evidence, "Pod %s runs and is ready now; its containers were restarted %s.", p.Name,
			words.Count(int(restarts), "time"))
	}
	return answer("", evidence, "Pod %s runs and is ready.", p.Name)
}

// since returns ", AGE ago", or an empty string if the time is unknown.
func (f explanation) since(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", " + words.Ago(f.Now.Sub(t.Time)) + " ago"
}

// names returns the names of the containers for which match returns true.
func names(list []corev1.ContainerStatus, match func(corev1.ContainerStatus) bool) (out []string) {
	for _, s := range list {
		if match(s) {
			out = append(out, s.Name)
		}
	}
	return out
}

func nodeCondition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &n.Status.Conditions[i]
}
