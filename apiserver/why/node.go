package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// node explains a node.
func (f explanation) node(n *corev1.Node) Answer {
	var evidence []string
	for _, c := range n.Status.Conditions {
		evidence = append(evidence,
			words.Condition(
				metav1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason,
					Message: c.Message}))
	}
	evidence = append(evidence, f.reports(n)...)
	evidence = append(evidence, f.EventLines(f.Warnings(n))...)
	ready := nodeCondition(n, corev1.NodeReady)
	if a := f.remoteNode(n, ready, evidence); a != nil {
		return *a
	}
	switch {
	case ready == nil:
		return answer("Wait; if it stays like this, read the log of monopod.", evidence,
			"Node %s has not reported its state yet.", n.Name)
	case ready.Status == corev1.ConditionUnknown:
		return answer("Start monopod on that machine, and check its network and its clock.", evidence,
			"Node %s does not report: %s.", n.Name, words.Clip(ready.Message))
	case ready.Status != corev1.ConditionTrue:
		do := "Read the log of monopod, and /readyz?verbose."
		if strings.Contains(ready.Message, "container runtime") || strings.Contains(ready.Message, "containerd") {
			do = "Check containerd: its process, its socket (--containerd), and the log of monopod."
		}
		return answer(do, evidence, "Node %s is not ready: %s.", n.Name, words.Clip(ready.Message))
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return answer(conditionRemedy(c.Type), evidence, "Node %s is ready, but has the condition %s: %s.", n.Name, c.Type,
				words.Clip(c.Message))
		}
	}
	if n.Spec.Unschedulable {
		return answer("kubectl uncordon "+n.Name, append(evidence, f.blockedDrain()...),
			"Node %s is ready and cordoned: it gets no new pods.", n.Name)
	}
	return answer("", evidence, "Node %s is ready.", n.Name)
}

// conditionRemedy returns what to do about a condition of a node.
func conditionRemedy(t corev1.NodeConditionType) string {
	switch t {
	case corev1.NodeDiskPressure:
		return "Free space: logs and volumes are below the data folder; " +
			"unused images are removed when the disk is nearly full."
	case corev1.NodeMemoryPressure:
		return "Give pods limits, or stop some; the node evicts pods until memory is free."
	case corev1.NodePIDPressure:
		return "Find the pod with too many processes; --pod-max-pids limits them."
	}
	return "Read the message, and the log of monopod."
}

// blockedDrain lists the PodDisruptionBudgets for which a drain waits.
func (f explanation) blockedDrain() (lines []string) {
	for _, b := range facts.Every[*policyv1.PodDisruptionBudget](f.Facts) {
		if b.Status.ExpectedPods > 0 && b.Status.DisruptionsAllowed == 0 {
			lines = append(lines,
				fmt.Sprintf("PodDisruptionBudget %s/%s allows no eviction now: a drain waits for it", b.Namespace, b.Name))
		}
	}
	return lines
}

// budget explains a PodDisruptionBudget.
func (f explanation) budget(b *policyv1.PodDisruptionBudget) Answer {
	evidence := append(
		[]string{fmt.Sprintf("healthy pods: %d, required: %d, expected: %d", b.Status.CurrentHealthy, b.Status.DesiredHealthy,
			b.Status.ExpectedPods)}, f.EventLines(f.Warnings(b))...)
	switch {
	case b.Status.ExpectedPods == 0:
		return answer("Make spec.selector equal to labels of the pods.", evidence,
			"PodDisruptionBudget %s protects nothing: it selects no pods.", b.Name)
	case b.Status.DisruptionsAllowed > 0:
		return answer("", evidence, "PodDisruptionBudget %s allows %s now.", b.Name,
			words.Count(int(b.Status.DisruptionsAllowed), "eviction"))
	case b.Status.CurrentHealthy < b.Status.DesiredHealthy:
		if a := f.worstPod(
			fmt.Sprintf("PodDisruptionBudget %s allows no eviction, because fewer pods are healthy than it requires", b.Name),
			f.Pods); a != nil {
			a.Evidence = append(evidence, a.Evidence...)
			return *a
		}
	}
	return answer("Run more replicas, or lower minAvailable (raise maxUnavailable); kubectl drain waits until then.",
		evidence, "PodDisruptionBudget %s allows no eviction: all of its %s must stay.", b.Name,
		words.Count(int(b.Status.CurrentHealthy), "healthy pod"))
}

// unserved matches a message about a metric of an API that no server serves.
var unserved = regexp.MustCompile(
	`(?:could not find the requested resource|no matches for|metrics API).*?((?:external|custom)\.metrics\.k8s\.io)`)

// autoscaler explains a HorizontalPodAutoscaler.
func (f explanation) autoscaler(h *autoscalingv2.HorizontalPodAutoscaler) Answer {
	var evidence []string
	of := map[autoscalingv2.HorizontalPodAutoscalerConditionType]autoscalingv2.HorizontalPodAutoscalerCondition{}
	for _, c := range h.Status.Conditions {
		of[c.Type] = c
		evidence = append(evidence,
			words.Condition(
				metav1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason,
					Message: c.Message}))
	}
	evidence = append(evidence, f.EventLines(f.Warnings(h))...)
	target := h.Spec.ScaleTargetRef.Kind + " " + h.Spec.ScaleTargetRef.Name
	able, active, limited := of[autoscalingv2.AbleToScale], of[autoscalingv2.ScalingActive],
		of[autoscalingv2.ScalingLimited]
	switch {
	case len(h.Status.Conditions) == 0:
		return answer("Wait; it is computed every 15 seconds.", evidence,
			"HorizontalPodAutoscaler %s has not been computed yet.", h.Name)
	case able.Reason == "FailedGetScale":
		return answer("Correct spec.scaleTargetRef, or create the target.", evidence,
			"HorizontalPodAutoscaler %s scales nothing: %s cannot be read.", h.Name, target)
	case active.Status == corev1.ConditionFalse && active.Reason == "ScalingDisabled":
		return answer("Scale the target to at least 1 by hand.", evidence,
			"HorizontalPodAutoscaler %s is off, because the replicas of %s are 0.", h.Name, target)
	case active.Status == corev1.ConditionFalse && strings.Contains(active.Message, "missing request"):
		return answer("Set resources.requests for every container of the target.", evidence,
			"HorizontalPodAutoscaler %s cannot compute a utilization: containers of %s have no requests.", h.Name, target)
	case active.Status == corev1.ConditionFalse && unserved.MatchString(active.Message):
		api := unserved.FindStringSubmatch(active.Message)[1]
		return answer("Install a metrics adapter that serves this API and the metric "+
			"(kubectl get apiservices shows which are there), "+
			"or use a metric of type Resource (cpu, memory), which monopod serves.", evidence,
			"HorizontalPodAutoscaler %s has no metrics of %s: nothing serves the API %s.", h.Name, target, api)
	case active.Status == corev1.ConditionFalse:
		return answer("Wait until the pods run and have been measured (kubectl top pods); the fake runtime measures nothing.",
			evidence, "HorizontalPodAutoscaler %s has no metrics of %s: %s.", h.Name, target, words.Clip(active.Message))
	case limited.Status == corev1.ConditionTrue &&
		slices.Contains([]string{"TooManyReplicas", "TooFewReplicas"}, limited.Reason):
		return answer("Change minReplicas or maxReplicas if another number is wanted.", evidence,
			"HorizontalPodAutoscaler %s keeps %s at %d replicas, a limit of its range.", h.Name, target,
			h.Status.DesiredReplicas)
	}
	return answer("", evidence, "HorizontalPodAutoscaler %s keeps %s at %d replicas.", h.Name, target,
		h.Status.DesiredReplicas)
}
