package autoscaling

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations for the fields of v2 that autoscaling/v1 does not have (upstream: pkg/apis/autoscaling).
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

// annotate stores the fields of a that v1 does not have in out's annotations.
func annotate(out *autoscalingv1.HorizontalPodAutoscaler, a *autoscalingv2.HorizontalPodAutoscaler) {
	removeAnnotations(out)
	var others []autoscalingv1.MetricSpec
	for i := range a.Spec.Metrics {
		if _, ok := cpuShare(&a.Spec.Metrics[i]); !ok {
			others = append(others, metricToV1(&a.Spec.Metrics[i]))
		}
	}
	var current []autoscalingv1.MetricStatus
	for i := range a.Status.CurrentMetrics {
		current = append(current, statusToV1(&a.Status.CurrentMetrics[i]))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range a.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	setAnnotation(&out.ObjectMeta, metricsAnnotation, others, len(others) > 0)
	setAnnotation(&out.ObjectMeta, currentAnnotation, current, len(current) > 0)
	setAnnotation(&out.ObjectMeta, conditionsAnnotation, conditions, len(conditions) > 0)
	if b := a.Spec.Behavior; b != nil {
		setAnnotation(&out.ObjectMeta, behaviorAnnotation,
			behavior{ScaleUp: rulesToAnnotation(b.ScaleUp), ScaleDown: rulesToAnnotation(b.ScaleDown)}, true)
	}
}

func setAnnotation(meta *metav1.ObjectMeta, key string, value any, some bool) {
	if !some {
		return
	}
	text, err := json.Marshal(value)
	if err != nil { // these types never fail
		return
	}
	metav1.SetMetaDataAnnotation(meta, key, string(text))
}

// readAnnotations sets fields from out's annotations and removes the annotations. As upstream, it ignores invalid
// annotations.
func readAnnotations(out *autoscalingv2.HorizontalPodAutoscaler) {
	for _, m := range readAnnotation[[]autoscalingv1.MetricSpec](out, metricsAnnotation) {
		out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&m))
	}
	if current := readAnnotation[[]autoscalingv1.MetricStatus](out, currentAnnotation); len(current) > 0 {
		out.Status.CurrentMetrics = nil // the annotation is more complete than the field
		for i := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(&current[i]))
		}
	}
	for _, c := range readAnnotation[[]autoscalingv1.HorizontalPodAutoscalerCondition](out, conditionsAnnotation) {
		out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			ObservedGeneration: c.ObservedGeneration,
		})
	}
	if b := readAnnotation[*behavior](out, behaviorAnnotation); b != nil {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: rulesFromAnnotation(b.ScaleUp), ScaleDown: rulesFromAnnotation(b.ScaleDown)}
	}
	removeAnnotations(out)
}

// readAnnotation decodes the annotation. It returns the zero value for an invalid one.
func readAnnotation[T any](obj metav1.Object, key string) T {
	var value, nothing T
	if json.Unmarshal([]byte(obj.GetAnnotations()[key]), &value) != nil {
		return nothing
	}
	return value
}

func removeAnnotations(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	for _, key := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation} {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		obj.SetAnnotations(nil)
	}
}

// behavior is the format of the annotation: upstream encodes its internal type, which has no JSON tags.
type behavior struct{ ScaleUp, ScaleDown *rules }

type rules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []policy
	Tolerance                  *resource.Quantity
}

type policy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func rulesToAnnotation(r *autoscalingv2.HPAScalingRules) *rules {
	if r == nil {
		return nil
	}
	out := &rules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy,
		Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, policy(p))
	}
	return out
}

func rulesFromAnnotation(r *rules) *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds,
		SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	return out
}
