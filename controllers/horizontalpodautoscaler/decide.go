package horizontalpodautoscaler

import (
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/metrics"
)

// input contains everything that an evaluation depends on.
type input struct {
	Settings
	hpa     *autoscalingv2.HorizontalPodAutoscaler
	current int32 // desired pods of the target
	now     time.Time
	history history

	// The fields below are only needed if the range alone does not decide (byRange).
	selection labels.Selector // selects the target's pods
	selectErr *failure        // why selection is missing
	rivals    []follow.Key    // all autoscalers that select the pods, if there are several
	pods      []*corev1.Pod   // of the target
	usage     usage           // of these pods
}

// usage is the response of metrics.k8s.io.
type usage struct {
	pods []*metrics.PodMetrics
	err  error
	took time.Duration // duration of the request
}

// verdict is the result of an evaluation.
type verdict struct {
	now      time.Time
	status   autoscalingv2.HorizontalPodAutoscalerStatus
	history  history
	replicas int32  // desired pods of the target
	rescale  bool   // replicas differs from the target's
	reason   string // for the change
	events   []event
	computed []computation // of each metric
	err      error         // of the evaluation, for the log
}

// event is an Event about the autoscaler.
type event struct{ kind, reason, message string }

// begin returns a verdict that changes nothing.
func begin(hpa *autoscalingv2.HorizontalPodAutoscaler, now time.Time) *verdict {
	return &verdict{now: now, status: *hpa.Status.DeepCopy()}
}

// warn records a warning.
func (v *verdict) warn(reason, format string, args ...any) {
	v.events = append(v.events, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

// set sets a condition. Its transition time changes only with its status.
func (v *verdict) set(t autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason,
	format string, args ...any) {
	next := autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: t, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...),
		LastTransitionTime: metav1.NewTime(v.now).Rfc3339Copy(),
	}
	for i := range v.status.Conditions {
		c := &v.status.Conditions[i]
		if c.Type != t {
			continue
		}
		if c.Status == status {
			next.LastTransitionTime = c.LastTransitionTime
		}
		*c = next
		return
	}
	v.status.Conditions = append(v.status.Conditions, next)
}

// limited sets the condition ScalingLimited.
func (v *verdict) limited(is bool, reason, message string) {
	status := corev1.ConditionFalse
	if is {
		status = corev1.ConditionTrue
	}
	v.set(autoscalingv2.ScalingLimited, status, reason, "%s", message)
}

// unscalable returns the verdict if reading the target's scale failed.
func unscalable(hpa *autoscalingv2.HorizontalPodAutoscaler, now time.Time, err error) *verdict {
	v := begin(hpa, now)
	v.warn("FailedGetScale", "%v", err)
	v.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale",
		"the HPA controller was unable to get the target's current scale: %v", err)
	v.err = err
	return v
}

// minReplicas returns spec.minReplicas, which the API server defaults to 1.
func (in *input) minReplicas() int32 { return ptr.Deref(in.hpa.Spec.MinReplicas, 1) }

// scaledToZero reports whether an autoscaler, and not another client, scaled the target to zero.
func (in *input) scaledToZero() bool {
	return slices.ContainsFunc(in.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
}

// byRange reports whether the range alone decides, and returns the number of pods and the reason. disabled means that
// another client scaled the target to zero.
func (in *input) byRange() (pods int32, reason string, disabled, ok bool) {
	switch least := in.minReplicas(); {
	case in.current == 0 && !in.scaledToZero():
		return 0, "", true, true
	case in.current > in.hpa.Spec.MaxReplicas:
		return in.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas", false, true
	case in.current < least:
		return least, "Current number of replicas below Spec.MinReplicas", false, true
	}
	return 0, "", false, false
}

// decide evaluates an autoscaler.
func decide(in *input) *verdict {
	v := begin(in.hpa, in.now)
	v.history = in.history
	v.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale",
		"the HPA controller was able to get the target's current scale")
	if len(v.history.recommended) == 0 {
		v.history.recommended = []entry{{in.current, in.now}}
	}
	v.status.ObservedGeneration, v.status.CurrentReplicas, v.status.CurrentMetrics = nil, in.current, nil
	pods, reason, disabled, ok := in.byRange()
	if disabled {
		v.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled",
			"scaling is disabled since the replica count of the target is zero")
	}
	if !ok && !in.byMetrics(v) {
		return v
	}
	if ok {
		v.replicas, v.reason = pods, reason
	}
	v.rescale = v.replicas != in.current && !disabled
	v.status.DesiredReplicas = v.replicas
	return v
}

// byMetrics computes the number of pods from the metrics. It returns false if that fails.
func (in *input) byMetrics(v *verdict) bool {
	if in.selectErr != nil {
		v.err = in.selectErr.err
		v.warn(in.selectErr.reason, "%v", in.selectErr.err)
		v.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "InvalidSelector", "%v", in.selectErr.cause)
		v.warn("FailedComputeMetricsReplicas", "%v", v.err)
		return false
	}
	if len(in.rivals) > 1 {
		v.err = fmt.Errorf("pods by selector %v are controlled by multiple HPAs: %v", in.selection, names(in.rivals))
		v.warn("AmbiguousSelector", "%v", v.err)
		v.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "AmbiguousSelector", "%v", v.err)
		v.warn("FailedComputeMetricsReplicas", "%v", v.err)
		return false
	}
	best, err := in.propose(v)
	v.err = err
	if best == nil {
		v.warn("FailedComputeMetricsReplicas", "%v", err)
		return false
	}
	switch {
	case best.replicas > in.current:
		v.reason = best.metric + " above target"
	case best.replicas < in.current:
		v.reason = "All metrics below target"
	}
	v.replicas = in.limit(v, best.replicas)
	return true
}

// names formats keys as upstream does.
func names(keys []follow.Key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprintf("{%s %s}", k.Name, k.Namespace)
	}
	return out
}

// scaled completes the verdict after the target's scale was updated.
func (v *verdict) scaled(in *input) {
	v.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale",
		"the HPA controller was able to update the target scale to %d", v.replicas)
	v.events = append(v.events, event{corev1.EventTypeNormal, "SuccessfulRescale",
		fmt.Sprintf("New size: %d; reason: %s", v.replicas, v.reason)})
	switch {
	case v.replicas == 0:
		v.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero",
			"the HPA controller scaled the workload to zero")
	case in.current == 0:
		v.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero",
			"the HPA controller did not scale the workload to zero")
	}
	v.history.scaled(in.hpa.Spec.Behavior, in.current, v.replicas, in.now)
	v.status.LastScaleTime = new(metav1.NewTime(in.now))
}

// unscaled completes the verdict after an update of the target's scale failed.
func (v *verdict) unscaled(in *input, err error) {
	v.warn("FailedRescale", "New size: %d; reason: %s; error: %v", v.replicas, v.reason, err)
	v.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale",
		"the HPA controller was unable to update the target scale: %v", err)
	v.status.DesiredReplicas = in.hpa.Status.DesiredReplicas
	v.err = err
}

// noticeable is the minimum difference of a value, in percent of its target, that is written to the status.
const noticeable = 1

// worthWriting reports whether a status differs from the stored one by more than the noise of a metric. The CPU usage
// of an idle pod varies a little at each evaluation, and each write wears the disk.
func worthWriting(stored, next *autoscalingv2.HorizontalPodAutoscalerStatus, specs []autoscalingv2.MetricSpec) bool {
	rest := *next
	rest.CurrentMetrics = stored.CurrentMetrics
	if !equality.Semantic.DeepEqual(stored, &rest) ||
		len(stored.CurrentMetrics) != len(next.CurrentMetrics) || len(specs) != len(next.CurrentMetrics) {
		return true
	}
	for i := range specs {
		if differs(&stored.CurrentMetrics[i], &next.CurrentMetrics[i], &specs[i]) {
			return true
		}
	}
	return false
}

// differs reports whether two values of a metric differ noticeably.
func differs(stored, next *autoscalingv2.MetricStatus, spec *autoscalingv2.MetricSpec) bool {
	if equality.Semantic.DeepEqual(stored, next) {
		return false
	}
	was, is, target := valueOf(stored), valueOf(next), targetOf(spec)
	if was == nil || is == nil || target == nil || stored.Type != next.Type {
		return true
	}
	if target.AverageUtilization != nil {
		return !equality.Semantic.DeepEqual(was.AverageUtilization, is.AverageUtilization)
	}
	if target.AverageValue == nil || was.AverageValue == nil || is.AverageValue == nil {
		return true
	}
	change := was.AverageValue.AsApproximateFloat64() - is.AverageValue.AsApproximateFloat64()
	limit := target.AverageValue.AsApproximateFloat64() * noticeable / 100
	return change > limit || -change > limit
}

// valueOf returns the value of a resource metric; nil for other metrics.
func valueOf(m *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	switch {
	case m.Resource != nil:
		return &m.Resource.Current
	case m.ContainerResource != nil:
		return &m.ContainerResource.Current
	}
	return nil
}

// targetOf returns the target of a resource metric; nil for other metrics.
func targetOf(m *autoscalingv2.MetricSpec) *autoscalingv2.MetricTarget {
	switch {
	case m.Resource != nil:
		return &m.Resource.Target
	case m.ContainerResource != nil:
		return &m.ContainerResource.Target
	}
	return nil
}
