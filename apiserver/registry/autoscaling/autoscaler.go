package autoscaling

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// defaultUtilization is the target CPU utilization of an autoscaler without metrics, in percent of the requests
// (upstream: autoscaling.DefaultCPUUtilization).
const defaultUtilization = 80

func autoscalerResource() kind.Resource {
	return kind.Resource{
		GVR:          client.HorizontalPodAutoscalers,
		Kind:         "HorizontalPodAutoscaler",
		Controller:   "horizontalpodautoscaling",
		Namespaced:   true,
		ShortNames:   []string{"hpa"},
		Categories:   []string{"all"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
		Default:      autoscalerDefault,
		Prepare:      kind.SpecAndStatus(autoscalerHalves, autoscalerDefault),
		Validate:     autoscalerValidate,
		Columns:      autoscalerColumns(),
	}
}

func autoscalerColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("Reference", "The scaled object.", func(a *autoscalingv2.HorizontalPodAutoscaler) string {
			return a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name
		}),
		table.Text("Targets", "Current and target values of the metrics.", autoscalerTargets),
		table.Text("MinPods", "Fewest pods.", func(a *autoscalingv2.HorizontalPodAutoscaler) string {
			if a.Spec.MinReplicas == nil {
				return "<unset>"
			}
			return fmt.Sprint(*a.Spec.MinReplicas)
		}),
		table.Count("MaxPods", "Most pods.",
			func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Spec.MaxReplicas) }),
		table.Count("Replicas", "Current number of pods.",
			func(a *autoscalingv2.HorizontalPodAutoscaler) int { return int(a.Status.CurrentReplicas) }),
		table.Age(),
	}
}

func autoscalerHalves(
	obj kind.Object) (*autoscalingv2.HorizontalPodAutoscalerSpec, *autoscalingv2.HorizontalPodAutoscalerStatus) {
	a := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	return &a.Spec, &a.Status
}

// autoscalerDefault implements upstream's SetDefaults_HorizontalPodAutoscaler of v2.
func autoscalerDefault(obj kind.Object) {
	spec := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec
	kind.SetIfNil(&spec.MinReplicas, 1)
	if len(spec.Metrics) == 0 {
		spec.Metrics = []autoscalingv2.MetricSpec{utilization(defaultUtilization)}
	}
	if spec.Behavior != nil {
		rulesDefault(&spec.Behavior.ScaleUp, new(int32(0)),
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
		rulesDefault(&spec.Behavior.ScaleDown, nil,
			autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15})
	}
}

// utilization returns the only metric that v1 has a field for: CPU utilization.
func utilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// rulesDefault sets the default scaling rules. Only nil policies get the default, because validation rejects an empty
// list.
func rulesDefault(at **autoscalingv2.HPAScalingRules, window *int32, policies ...autoscalingv2.HPAScalingPolicy) {
	kind.SetIfNil(at, autoscalingv2.HPAScalingRules{})
	rules := *at
	if rules.StabilizationWindowSeconds == nil {
		rules.StabilizationWindowSeconds = window
	}
	kind.SetIfNil(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if rules.Policies == nil {
		rules.Policies = policies
	}
}
