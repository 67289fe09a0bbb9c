package eviction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"monopod/agent/podapi/status"
)

// Reasons of evicted pods.
const (
	Reason           = "Evicted"
	ReasonPreempting = "Preempting"
)

// kubeletEnds is the reason of the condition DisruptionTarget.
const kubeletEnds = corev1.PodReasonTerminationByKubelet

// ThresholdFailure returns the reason and message of an eviction for a met threshold.
func ThresholdFailure(m Met, pod *corev1.Pod, usage Usage) *status.Failure {
	name := m.Signal.Resource()
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %v. ", name)
	fmt.Fprintf(&text, "Threshold quantity: %s, available: %s. ", m.Signal.quantity(m.Value.Of(m.Amount.Total)),
		m.Signal.quantity(m.Amount.Free))
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		used, known := usage.Containers[c.Name][name]
		asked := c.Resources.Requests[name]
		if known && used > asked.Value() {
			fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %v. ", c.Name,
				m.Signal.quantity(used), asked.String(), name)
		}
	}
	return failure(Reason, text.String())
}

func failure(reason, message string) *status.Failure {
	return &status.Failure{Reason: reason, Message: message, Disruption: kubeletEnds}
}

// Preempted returns the reason and message of a pod that a critical one preempts.
func Preempted() *status.Failure {
	return failure(ReasonPreempting, "Preempted in order to admit critical pod")
}

// Admit returns why a pod is rejected under these conditions; nil: it is admitted. It admits critical pods always.
// Under MemoryPressure alone, it rejects only BestEffort pods that do not tolerate the taint.
func Admit(pod *corev1.Pod, critical bool, pressure []corev1.NodeConditionType) *status.Failure {
	if len(pressure) == 0 || critical {
		return nil
	}
	if slices.Equal(pressure, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) &&
		(status.QOS(pod) != corev1.PodQOSBestEffort || tolerates(pod, corev1.TaintNodeMemoryPressure)) {
		return nil
	}
	return &status.Failure{Reason: Reason, Message: fmt.Sprintf("The node had condition: %v. ", pressure)}
}

func tolerates(pod *corev1.Pod, key string) bool {
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, &taint, false)
}

const (
	criticalPriority   = 2_000_000_000 // upstream: SystemCriticalPriority
	criticalAnnotation = "scheduler.alpha.kubernetes.io/critical-pod"
)

// Critical reports whether a pod is critical by its priority or annotations, so that it is never evicted. With
// byAnnotation the deprecated annotation counts. Static pods are also critical, but Critical only recognizes their
// mirror pods.
func Critical(pod *corev1.Pod, byAnnotation bool) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || priority(pod) >= criticalPriority {
		return true
	}
	value, annotated := pod.Annotations[criticalAnnotation]
	return byAnnotation && annotated && value == "" && pod.Namespace == "kube-system"
}
