package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func oldAutoscalerResource() kind.Resource {
	r := autoscalerResource()
	return kind.Resource{
		GVR:          client.HorizontalPodAutoscalersV1,
		Kind:         r.Kind,
		Namespaced:   r.Namespaced,
		ShortNames:   r.ShortNames,
		Categories:   r.Categories,
		Subresources: r.Subresources,
		New:          func() kind.Object { return new(autoscalingv1.HorizontalPodAutoscaler) },
		View:         &kind.View{Of: client.HorizontalPodAutoscalers, Show: toV1, Store: fromV1},
		Columns:      table.Converted(r.Columns, fromV1),
	}
}

// toV1 converts an autoscaler to v1. Annotations contain the fields that v1 does not have, so that fromV1 restores the
// same object.
func toV1(stored kind.Object) kind.Object {
	a := stored.(*autoscalingv2.HorizontalPodAutoscaler).DeepCopy()
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
			MinReplicas:    a.Spec.MinReplicas,
			MaxReplicas:    a.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: a.Status.ObservedGeneration,
			LastScaleTime:      a.Status.LastScaleTime,
			CurrentReplicas:    a.Status.CurrentReplicas,
			DesiredReplicas:    a.Status.DesiredReplicas,
		},
	}
	for i := range a.Spec.Metrics {
		if share, ok := cpuShare(&a.Spec.Metrics[i]); ok {
			out.Spec.TargetCPUUtilizationPercentage = share
			break
		}
	}
	for i := range a.Status.CurrentMetrics {
		if m := &a.Status.CurrentMetrics[i]; m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil &&
			m.Resource.Name == corev1.ResourceCPU {
			out.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	annotate(out, a)
	return out
}

// cpuShare returns the target of a CPU utilization metric, for which v1 has a field.
func cpuShare(m *autoscalingv2.MetricSpec) (*int32, bool) {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil, false
	}
	return m.Resource.Target.AverageUtilization, m.Resource.Target.AverageUtilization != nil
}

// fromV1 converts an autoscaler of v1 to v2. Without metrics, the target is the default CPU utilization.
func fromV1(shown kind.Object) kind.Object {
	a := shown.(*autoscalingv1.HorizontalPodAutoscaler).DeepCopy()
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(a.Spec.ScaleTargetRef),
			MinReplicas:    a.Spec.MinReplicas,
			MaxReplicas:    a.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: a.Status.ObservedGeneration,
			LastScaleTime:      a.Status.LastScaleTime,
			CurrentReplicas:    a.Status.CurrentReplicas,
			DesiredReplicas:    a.Status.DesiredReplicas,
		},
	}
	if share := a.Status.CurrentCPUUtilizationPercentage; share != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: share}},
		}}
	}
	readAnnotations(out)
	if share := a.Spec.TargetCPUUtilizationPercentage; share != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, utilization(*share))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{utilization(defaultUtilization)}
	}
	return out
}
