package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/check"
)

// Upstream's limits (pkg/apis/batch/validation).
const (
	maxRules          = 20
	maxExitCodes      = 255
	maxPodConditions  = 20
	maxIndexesLetters = 64 * 1024
)

// jobPolicies checks podFailurePolicy, successPolicy and podReplacementPolicy.
func jobPolicies(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	replacements := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	if spec.PodFailurePolicy != nil {
		errs = append(errs, failurePolicy(spec, path.Child("podFailurePolicy", "rules"))...)
		replacements = replacements[:1]
	}
	if spec.SuccessPolicy != nil {
		errs = append(errs, successPolicy(spec, path.Child("successPolicy"))...)
	}
	return append(errs, check.NilOr(path.Child("podReplacementPolicy"), spec.PodReplacementPolicy, replacements...)...)
}

func failurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := spec.PodFailurePolicy.Rules
	if len(rules) > maxRules {
		errs = append(errs, field.TooMany(path, len(rules), maxRules))
	}
	for i := range rules {
		rule, at := &rules[i], path.Index(i)
		if action := rule.Action; action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
			errs = append(errs, field.Invalid(at.Child("action"), action, "requires the backoffLimitPerIndex to be set"))
		} else {
			errs = append(errs, check.OneOf(at.Child("action"), action, batchv1.PodFailurePolicyActionCount,
				batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob,
				batchv1.PodFailurePolicyActionIgnore)...)
		}
		if rule.OnExitCodes != nil {
			errs = append(errs, exitCodes(spec, rule.OnExitCodes, at.Child("onExitCodes"))...)
		}
		conditions := at.Child("onPodConditions")
		if n := len(rule.OnPodConditions); n > maxPodConditions {
			errs = append(errs, field.TooMany(conditions, n, maxPodConditions))
		}
		for i, p := range rule.OnPodConditions {
			errs = append(errs,
				check.Invalid(conditions.Index(i).Child("type"), p.Type, validation.IsQualifiedName(string(p.Type)))...)
			errs = append(errs, check.OneOf(conditions.Index(i).Child("status"), p.Status, corev1.ConditionFalse,
				corev1.ConditionTrue, corev1.ConditionUnknown)...)
		}
		switch byCode, byCondition := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case byCode && byCondition:
			errs = append(errs,
				field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
		case !byCode && !byCondition:
			errs = append(errs,
				field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
		}
	}
	return errs
}

func exitCodes(spec *batchv1.JobSpec, r *batchv1.PodFailurePolicyOnExitCodesRequirement,
	path *field.Path) field.ErrorList {
	errs := check.OneOf(path.Child("operator"), r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn,
		batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	containers := slices.Concat(spec.Template.Spec.Containers, spec.Template.Spec.InitContainers)
	if name := r.ContainerName; name != nil &&
		!slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == *name }) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *name,
			"must be one of the container or initContainer names in the pod template"))
	}
	values := path.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(values, r.Values, "at least one value is required"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	for i, code := range r.Values {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(values.Index(i), code, "must not be 0 for the In operator"))
		}
		if slices.Contains(r.Values[:i], code) {
			errs = append(errs, field.Duplicate(values.Index(i), code))
		}
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(values, r.Values, "must be ordered"))
	}
	return errs
}

func successPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !isIndexed(spec) {
		return field.ErrorList{field.Invalid(path, *spec.SuccessPolicy, "requires indexed completion mode")}
	}
	var errs field.ErrorList
	rules, at := spec.SuccessPolicy.Rules, path.Child("rules")
	if len(rules) == 0 {
		errs = append(errs, field.Required(at, "at least one rules must be specified when the successPolicy is specified"))
	}
	if len(rules) > maxRules {
		errs = append(errs, field.TooMany(at, len(rules), maxRules))
	}
	if spec.Completions == nil { // jobIndexed returns the error
		return errs
	}
	for i := range rules {
		errs = append(errs, successRule(&rules[i], *spec.Completions, at.Index(i))...)
	}
	return errs
}

func successRule(rule *batchv1.SuccessPolicyRule, completions int32, path *field.Path) field.ErrorList {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		return field.ErrorList{field.Required(path, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	var total int32
	if text, at := rule.SucceededIndexes, path.Child("succeededIndexes"); text != nil {
		if len(*text) > maxIndexesLetters {
			errs = append(errs, field.TooLong(at, *text, maxIndexesLetters))
		}
		list, err := batch.ParseIndexes(*text, completions)
		if err != nil {
			errs = append(errs, field.Invalid(at, *text, fmt.Sprintf("error parsing succeededIndexes: %v", err)))
		}
		total = list.Count()
	}
	if n, at := rule.SucceededCount, path.Child("succeededCount"); n != nil {
		errs = append(errs, check.NonNegative(at, *n)...)
		errs = append(errs, notAbove(at, n, completions, " (the number of specified completions)")...)
		if rule.SucceededIndexes != nil {
			errs = append(errs, notAbove(at, n, total, " (the number of indexes in the specified succeededIndexes field)")...)
		}
	}
	return errs
}
