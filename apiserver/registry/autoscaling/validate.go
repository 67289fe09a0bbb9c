package autoscaling

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// Upstream's limits in seconds (pkg/apis/autoscaling/validation).
const (
	maxPeriod = 1800
	maxWindow = 3600
)

func autoscalerValidate(next, cur kind.Object, subresource string) field.ErrorList {
	a := next.(*autoscalingv2.HorizontalPodAutoscaler)
	if subresource == "status" {
		return check.Counts(field.NewPath("status"),
			check.Count{Name: "currentReplicas", Value: int64(a.Status.CurrentReplicas)},
			check.Count{Name: "desiredReplicas", Value: int64(a.Status.DesiredReplicas)})
	}

	spec, at := &a.Spec, field.NewPath("spec")
	var errs field.ErrorList
	if n := spec.MinReplicas; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *n, "must be greater than or equal to 0"))
	}
	if n := spec.MaxReplicas; n < 1 {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), n, "must be greater than 0"))
	}
	if n := spec.MinReplicas; n != nil && spec.MaxReplicas < *n {
		errs = append(errs,
			field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	ref, target := &spec.ScaleTargetRef, at.Child("scaleTargetRef")
	errs = append(errs, reference(ref, target)...)
	old, _ := cur.(*autoscalingv2.HorizontalPodAutoscaler)
	if old == nil || old.Spec.ScaleTargetRef.APIVersion != ref.APIVersion || old.Spec.ScaleTargetRef.Kind != ref.Kind {
		errs = append(errs, apiVersion(ref.APIVersion, ref.Kind == "ReplicationController", target.Child("apiVersion"))...)
	}
	errs = append(errs, metrics(spec, at.Child("metrics"))...)
	if spec.Behavior != nil {
		errs = append(errs, rulesErrors(spec.Behavior.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, rulesErrors(spec.Behavior.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func apiVersion(version string, core bool, at *field.Path) field.ErrorList {
	gv, err := schema.ParseGroupVersion(version)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(at, version, err.Error())}
	case gv.Group == "" && !core:
		return field.ErrorList{field.Invalid(at, version, "apiVersion must specify API group")}
	}
	return nil
}

func reference(ref *autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	return append(check.Named(at.Child("kind"), ref.Kind, content.IsPathSegmentName),
		check.Named(at.Child("name"), ref.Name, content.IsPathSegmentName)...)
}

func rulesErrors(rules *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if rules == nil {
		return nil
	}
	var errs field.ErrorList
	if w, at := rules.StabilizationWindowSeconds, at.Child("stabilizationWindowSeconds"); w != nil {
		if *w < 0 {
			errs = append(errs, field.Invalid(at, *w, "must be greater than or equal to zero"))
		}
		if *w > maxWindow {
			errs = append(errs, field.Invalid(at, *w, fmt.Sprintf("must be less than or equal to %d", maxWindow)))
		}
	}
	errs = append(errs, check.NilOr(at.Child("selectPolicy"), rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect,
		autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect)...)
	if len(rules.Policies) == 0 {
		errs = append(errs, field.Required(at.Child("policies"), "must specify at least one Policy"))
	}
	for i := range rules.Policies {
		p, at := &rules.Policies[i], at.Child("policies").Index(i)
		if kinds := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy,
			autoscalingv2.PodsScalingPolicy}; !slices.Contains(kinds, p.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, kinds))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		}
		if p.PeriodSeconds > maxPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds,
				fmt.Sprintf("must be less than or equal to %d", maxPeriod)))
		}
	}
	if t := rules.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("tolerance"), t.String(), "must be greater than or equal to 0"))
	}
	return errs
}
