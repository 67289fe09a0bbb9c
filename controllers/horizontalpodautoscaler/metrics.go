package horizontalpodautoscaler

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// proposal is the recommendation of one metric, or of all of them.
type proposal struct {
	replicas int32
	metric   string // its name in Events
}

// failure describes a metric that cannot be evaluated: the reason of the Event and the condition, the error for both,
// and the error that propose returns.
type failure struct {
	reason string
	cause  error
	err    error
}

// propose evaluates every metric and returns the highest recommendation. Failed metrics prevent a scale-down, but not a
// scale-up by the others. It returns nil if there is no recommendation.
func (in *input) propose(v *verdict) (best *proposal, err error) {
	specs := in.hpa.Spec.Metrics
	v.status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i := range specs {
		p, status, f := in.evaluate(&specs[i])
		done := computation{kind: specs[i].Type, action: "none", took: in.usage.took}
		if f == nil {
			done.action = direction(p.replicas, in.current)
		} else {
			done.err = f.err
		}
		v.computed = append(v.computed, done)
		if f != nil {
			v.warn(f.reason, "%v", f.cause)
			failed++
			if first == nil {
				first = f
			}
			continue
		}
		v.status.CurrentMetrics[i] = status
		if best == nil || best.replicas == 0 || p.replicas > best.replicas {
			best = &p
		}
	}
	if first != nil {
		err = fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(specs), first.err)
	}
	if best == nil || failed > 0 && best.replicas < in.current {
		if first != nil {
			v.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason,
				"the HPA was unable to compute the replica count: %v", first.cause)
		}
		return nil, err
	}
	v.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound",
		"the HPA was able to successfully calculate a replica count from %s", best.metric)
	return best, err
}

// evaluate evaluates one metric. Only resource metrics are served; the others fail as in a cluster without an adapter.
func (in *input) evaluate(m *autoscalingv2.MetricSpec) (proposal, autoscalingv2.MetricStatus, *failure) {
	status := autoscalingv2.MetricStatus{Type: m.Type}
	fail := func(reason, wrap string, cause error) (proposal, autoscalingv2.MetricStatus, *failure) {
		return proposal{}, status, &failure{reason, cause, fmt.Errorf("%s: %w", wrap, cause)}
	}
	switch m.Type {
	case autoscalingv2.ResourceMetricSourceType:
		s := m.Resource
		n, current, err := byResource{name: s.Name, target: s.Target}.pods(in)
		if err != nil {
			return fail("FailedGetResourceMetric", fmt.Sprintf("failed to get %s resource metric value", s.Name), err)
		}
		status.Resource = &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: current}
		return proposal{n, nameOf(s.Name, s.Target, "")}, status, nil
	case autoscalingv2.ContainerResourceMetricSourceType:
		s := m.ContainerResource
		n, current, err := byResource{name: s.Name, container: s.Container, target: s.Target}.pods(in)
		if err != nil {
			return fail("FailedGetContainerResourceMetric", fmt.Sprintf("failed to get %s container metric value", s.Container),
				err)
		}
		status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: s.Name, Container: s.Container,
			Current: current}
		return proposal{n, nameOf(s.Name, s.Target, "container ")}, status, nil
	case autoscalingv2.ObjectMetricSourceType:
		s := m.Object
		err := fmt.Errorf("unable to get metric %s: %s on %s %s/%w", s.Metric.Name, s.DescribedObject.Kind, in.hpa.Namespace,
			s.DescribedObject.Name, errCustom)
		if s.Target.Type == autoscalingv2.AverageValueMetricType {
			err = fmt.Errorf("failed to get %s object metric: %w", s.Metric.Name, err)
		}
		return fail("FailedGetObjectMetric", "failed to get object metric value", err)
	case autoscalingv2.PodsMetricSourceType:
		return fail("FailedGetPodsMetric", "failed to get pods metric value",
			fmt.Errorf("unable to get metric %s: %w", m.Pods.Metric.Name, errCustom))
	case autoscalingv2.ExternalMetricSourceType:
		return fail("FailedGetExternalMetric", fmt.Sprintf("failed to get %s external metric value", m.External.Metric.Name),
			in.external(m.External))
	}
	err := specError{fmt.Errorf("unknown metric source type %q", m.Type)}
	return proposal{}, status, &failure{"InvalidMetricSourceType", err, err}
}

// errCustom and external are the errors of upstream's clients if the API is not registered.
var errCustom = errors.New(
	"unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered")

func (in *input) external(s *autoscalingv2.ExternalMetricSource) error {
	err := fmt.Errorf("unable to get external metric %s/%s/%s: unable to fetch metrics from external metrics API: "+
		"the server could not find the requested resource (get %s.external.metrics.k8s.io)",
		in.hpa.Namespace, s.Metric.Name, selectorOf(s.Metric.Selector), s.Metric.Name)
	if s.Target.AverageValue != nil {
		return fmt.Errorf("failed to get %s external metric: %w", s.Metric.Name, err)
	}
	return fmt.Errorf("failed to get external metric %s: %w", s.Metric.Name, err)
}

func selectorOf(s *metav1.LabelSelector) string { return fmt.Sprintf("%+v", s) }

// nameOf returns the name of a resource metric in Events and conditions.
func nameOf(name corev1.ResourceName, target autoscalingv2.MetricTarget, of string) string {
	if target.AverageValue != nil {
		return fmt.Sprintf("%s resource", name)
	}
	return fmt.Sprintf("%s %sresource utilization (percentage of request)", name, of)
}
