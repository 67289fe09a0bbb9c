package autoscaling

import (
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// metrics requires an Object or External metric if minReplicas is 0: without pods, other metrics have no values.
func metrics(spec *autoscalingv2.HorizontalPodAutoscalerSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	outside := false
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		errs = append(errs, metric(m, at.Index(i))...)
		outside = outside || m.Type == autoscalingv2.ObjectMetricSourceType ||
			m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if n := spec.MinReplicas; n != nil && *n == 0 && !outside {
		errs = append(errs,
			field.Forbidden(at, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// metricTypes returns the metric types in alphabetical order.
func metricTypes() []autoscalingv2.MetricSourceType {
	return []autoscalingv2.MetricSourceType{
		autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType,
	}
}

// metric requires the source that matches the type, and no other.
func metric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	if m.Type == "" {
		return field.ErrorList{field.Required(at.Child("type"), "must specify a metric source type")}
	}
	if !slices.Contains(metricTypes(), m.Type) {
		return field.ErrorList{field.NotSupported(at.Child("type"), m.Type, metricTypes())}
	}
	errs := source(m, at)
	member := strings.ToLower(string(m.Type[:1])) + string(m.Type[1:]) // the field's name: "pods" for "Pods"
	set := check.UnionMembers(*m)
	if !slices.Contains(set, member) {
		errs = append(errs, field.Required(at.Child(member), "must populate information for the given metric source"))
	}
	for _, other := range set {
		if other != member {
			errs = append(errs, field.Forbidden(at.Child(other), "must populate the given metric source only"))
		}
	}
	return errs
}

// source checks the first source that is set.
func source(m *autoscalingv2.MetricSpec, at *field.Path) (errs field.ErrorList) {
	switch {
	case m.Object != nil:
		s, at := m.Object, at.Child("object")
		errs = slices.Concat(reference(&s.DescribedObject, at.Child("describedObject")),
			apiVersion(s.DescribedObject.APIVersion, true, at.Child("describedObject", "apiVersion")),
			metricName(&s.Metric, at.Child("metric")), targetErrors(&s.Target, at.Child("target")))
		if s.Target.Value == nil && s.Target.AverageValue == nil {
			errs = append(errs,
				field.Required(at.Child("target", "averageValue"), "must set either a target value or averageValue"))
		}
	case m.External != nil:
		s, at := m.External, at.Child("external")
		errs = append(metricName(&s.Metric, at.Child("metric")), targetErrors(&s.Target, at.Child("target"))...)
		switch value, average := s.Target.Value != nil, s.Target.AverageValue != nil; {
		case !value && !average:
			errs = append(errs, field.Required(at.Child("target", "averageValue"),
				"must set either a target value for metric or a per-pod target"))
		case value && average:
			errs = append(errs, field.Forbidden(at.Child("target", "value"),
				"may not set both a target value for metric and a per-pod target"))
		}
	case m.Pods != nil:
		s, at := m.Pods, at.Child("pods")
		errs = append(metricName(&s.Metric, at.Child("metric")), targetErrors(&s.Target, at.Child("target"))...)
		if s.Target.AverageValue == nil {
			errs = append(errs,
				field.Required(at.Child("target", "averageValue"), "must specify a positive target averageValue"))
		}
	case m.Resource != nil:
		s, at := m.Resource, at.Child("resource")
		errs = append(requireText(at.Child("name"), string(s.Name), "must specify a resource name"),
			utilizationTarget(&s.Target, at.Child("target"))...)
	case m.ContainerResource != nil:
		s, at := m.ContainerResource, at.Child("containerResource")
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
		} else {
			errs = append(errs, check.ContainerResourceName(at.Child("name"), s.Name)...)
		}
		errs = slices.Concat(errs, requireText(at.Child("container"), s.Container, "must specify a container"),
			check.UnsetOrNamed(at.Child("container"), s.Container, validation.IsDNS1123Label),
			utilizationTarget(&s.Target, at.Child("target")))
	}
	return errs
}

func requireText(at *field.Path, text, message string) field.ErrorList {
	if text == "" {
		return field.ErrorList{field.Required(at, message)}
	}
	return nil
}

func metricName(id *autoscalingv2.MetricIdentifier, at *field.Path) field.ErrorList {
	if id.Name == "" {
		return field.ErrorList{field.Required(at.Child("name"), "must specify a metric name")}
	}
	return check.Invalid(at.Child("name"), id.Name, content.IsPathSegmentName(id.Name))
}

// utilizationTarget requires either averageUtilization or averageValue.
func utilizationTarget(t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := targetErrors(t, at)
	switch share, average := t.AverageUtilization != nil, t.AverageValue != nil; {
	case !share && !average:
		errs = append(errs,
			field.Required(at.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case share && average:
		errs = append(errs,
			field.Forbidden(at.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func targetErrors(t *autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := requireText(at.Child("type"), string(t.Type), "must specify a metric target type")
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	positive := func(name string, q *resource.Quantity) {
		if q != nil && q.Sign() != 1 {
			errs = append(errs, field.Invalid(at.Child(name), q.String(), "must be positive"))
		}
	}
	positive("value", t.Value)
	positive("averageValue", t.AverageValue)
	if n := t.AverageUtilization; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), *n, "must be greater than 0"))
	}
	return errs
}
