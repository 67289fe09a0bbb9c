package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/apiserver/registry/kind/table"
)

// maxShownTargets is the maximum number of metrics in a cell.
const maxShownTargets = 2

// autoscalerTargets returns the first metrics as "current/target".
func autoscalerTargets(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if len(a.Spec.Metrics) == 0 {
		return table.None
	}
	var list []string
	for i := range a.Spec.Metrics {
		current := autoscalingv2.MetricStatus{}
		if i < len(a.Status.CurrentMetrics) {
			current = a.Status.CurrentMetrics[i]
		}
		list = append(list, target(&a.Spec.Metrics[i], &current))
	}
	if more := len(list) - maxShownTargets; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:maxShownTargets], ", "), more)
	}
	return strings.Join(list, ", ")
}

func target(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	want, name, ok := targetOf(spec)
	if !ok {
		return "<unknown type>"
	}
	have := currentOf(spec.Type, status)
	switch {
	case name != "" && want.AverageValue == nil:
		return fmt.Sprintf("%s: %s/%s", name, percent(have, table.Unknown),
			percent(&autoscalingv2.MetricValueStatus{AverageUtilization: want.AverageUtilization}, "<auto>"))
	case name != "":
		return fmt.Sprintf("%s: %s/%s", name, amount(have, true), want.AverageValue)
	case spec.Type == autoscalingv2.PodsMetricSourceType:
		return amount(have, true) + "/" + text(want.AverageValue)
	case want.AverageValue != nil:
		return amount(have, true) + "/" + text(want.AverageValue) + " (avg)"
	}
	return amount(have, false) + "/" + text(want.Value)
}

// targetOf returns the metric's target, and for a resource metric the name of the resource. ok is false for an unknown
// type.
func targetOf(spec *autoscalingv2.MetricSpec) (want *autoscalingv2.MetricTarget, name string, ok bool) {
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return &spec.External.Target, "", true
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		return &spec.Pods.Target, "", true
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return &spec.Object.Target, "", true
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return &spec.Resource.Target, spec.Resource.Name.String(), true
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return &spec.ContainerResource.Target, spec.ContainerResource.Name.String(), true
	}
	return nil, "", false
}

// currentOf returns the current value of a metric of the type; nil: none yet.
func currentOf(kind autoscalingv2.MetricSourceType,
	status *autoscalingv2.MetricStatus) *autoscalingv2.MetricValueStatus {
	switch {
	case kind == autoscalingv2.ExternalMetricSourceType && status.External != nil:
		return &status.External.Current
	case kind == autoscalingv2.PodsMetricSourceType && status.Pods != nil:
		return &status.Pods.Current
	case kind == autoscalingv2.ObjectMetricSourceType && status.Object != nil:
		return &status.Object.Current
	case kind == autoscalingv2.ResourceMetricSourceType && status.Resource != nil:
		return &status.Resource.Current
	case kind == autoscalingv2.ContainerResourceMetricSourceType && status.ContainerResource != nil:
		return &status.ContainerResource.Current
	}
	return nil
}

func amount(have *autoscalingv2.MetricValueStatus, average bool) string {
	switch {
	case have == nil || average && have.AverageValue == nil || !average && have.Value == nil:
		return table.Unknown
	case average:
		return have.AverageValue.String()
	}
	return have.Value.String()
}

func percent(have *autoscalingv2.MetricValueStatus, unset string) string {
	if have == nil || have.AverageUtilization == nil {
		return unset
	}
	return fmt.Sprintf("%d%%", *have.AverageUtilization)
}

// text formats a quantity; nil as upstream does.
func text(q *resource.Quantity) string {
	if q == nil {
		return "<nil>"
	}
	return q.String()
}
