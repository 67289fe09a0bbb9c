package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// podSchedulingValidate validates the fields that determine the pod's node.
func podSchedulingValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))
	if spec.Affinity != nil {
		errs = append(errs, affinityValidate(spec.Affinity, path.Child("affinity"))...)
	}
	for i := range spec.Tolerations {
		errs = append(errs, TolerationErrors(&spec.Tolerations[i], path.Child("tolerations").Index(i))...)
	}
	errs = append(errs, spreadValidate(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	gates := map[string]bool{}
	for i, g := range spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, check.Invalid(at, g.Name, validation.IsQualifiedName(g.Name))...)
		errs = append(errs, check.Unique(at, g.Name, gates)...)
	}
	return append(errs, check.NilOr(path.Child("preemptionPolicy"), spec.PreemptionPolicy, corev1.PreemptLowerPriority,
		corev1.PreemptNever)...)
}

// TolerationErrors returns the errors of one toleration.
func TolerationErrors(t *corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	} else if t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs,
			field.Invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch at := path.Child("operator"); {
	case t.Operator == corev1.TolerationOpEqual || t.Operator == "":
		errs = append(errs, check.Invalid(at, t.Value, validation.IsValidLabelValue(t.Value))...)
	case t.Operator != corev1.TolerationOpExists:
		errs = append(errs, check.UnsetOr(at, t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
	case t.Value != "":
		errs = append(errs, field.Invalid(at, t, "value must be empty when `operator` is 'Exists'"))
	}
	return append(errs, check.UnsetOr(path.Child("effect"), t.Effect, check.TaintEffects()...)...)
}

func spreadValidate(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	type pair struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	var errs field.ErrorList
	seen := map[pair]bool{}
	for i := range constraints {
		c, at := &constraints[i], path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
		}
		errs = append(errs, topologyKey(c.TopologyKey, at.Child("topologyKey"))...)
		errs = append(errs,
			check.OneOf(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		if d := c.MinDomains; d != nil && *d <= 0 {
			errs = append(errs, field.Invalid(at.Child("minDomains"), *d, "must be greater than zero"))
		} else if d != nil && c.WhenUnsatisfiable != corev1.DoNotSchedule {
			errs = append(errs,
				field.Invalid(at.Child("minDomains"), *d, "can only use minDomains if whenUnsatisfiable=DoNotSchedule"))
		}
		errs = slices.Concat(errs,
			check.NilOr(at.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor,
				corev1.NodeInclusionPolicyIgnore),
			check.NilOr(at.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor,
				corev1.NodeInclusionPolicyIgnore),
			labelKeys(c.MatchLabelKeys, at.Child("matchLabelKeys")),
			check.LabelSelector(at.Child("labelSelector"), c.LabelSelector))
		id := pair{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[id] {
			errs = append(errs,
				field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%s, %s}", id.key, id.when)))
		}
		seen[id] = true
	}
	return errs
}

func topologyKey(key string, path *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(path, "can not be empty")}
	}
	return metavalidation.ValidateLabelName(key, path)
}

func labelKeys(keys []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, path.Index(i))...)
	}
	return errs
}

func affinityValidate(a *corev1.Affinity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if node := a.NodeAffinity; node != nil {
		if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			errs = append(errs, NodeSelectorErrors(required, path.Child("nodeAffinity", RequiredTerms))...)
		}
		for i := range node.PreferredDuringSchedulingIgnoredDuringExecution {
			term := &node.PreferredDuringSchedulingIgnoredDuringExecution[i]
			at := path.Child("nodeAffinity", preferredTerms).Index(i)
			errs = append(errs, weightValidate(term.Weight, at)...)
			errs = append(errs, nodeTermValidate(&term.Preference, at.Child("preference"))...)
		}
	}
	if p := a.PodAffinity; p != nil {
		errs = append(errs, podAffinityValidate(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		errs = append(errs, podAffinityValidate(p.RequiredDuringSchedulingIgnoredDuringExecution,
			p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))...)
	}
	return errs
}

// Names of the fields of an affinity.
const (
	// RequiredTerms is the field of the required terms.
	RequiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
)

func weightValidate(weight int32, path *field.Path) field.ErrorList {
	if weight >= 1 && weight <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("weight"), weight, "must be in the range 1-100")}
}

func nodeTermValidate(term *corev1.NodeSelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range term.MatchExpressions {
		errs = append(errs, nodeRequirement(&term.MatchExpressions[i], path.Child("matchExpressions").Index(i))...)
	}
	for i := range term.MatchFields {
		errs = append(errs, nodeFieldRequirement(&term.MatchFields[i], path.Child("matchFields").Index(i))...)
	}
	return errs
}

func nodeRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs,
				field.Forbidden(path.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs,
				field.Required(path.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return append(errs, metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
}

// nodeFieldRequirement supports only metadata.name.
func nodeFieldRequirement(r *corev1.NodeSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	} else if len(r.Values) != 1 {
		errs = append(errs, field.Required(path.Child("values"),
			"must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
	}
	if r.Key != metav1.ObjectNameField {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range r.Values {
		errs = append(errs, check.Invalid(path.Child("values").Index(i), v, check.Subdomain(v))...)
	}
	return errs
}

func podAffinityValidate(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range required {
		errs = append(errs, podTermValidate(&required[i], path.Child(RequiredTerms).Index(i))...)
	}
	for i := range preferred {
		at := path.Child(preferredTerms).Index(i)
		errs = append(errs, weightValidate(preferred[i].Weight, at)...)
		errs = append(errs, podTermValidate(&preferred[i].PodAffinityTerm, at.Child("podAffinityTerm"))...)
	}
	return errs
}

func podTermValidate(term *corev1.PodAffinityTerm, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		check.LabelSelector(path.Child("labelSelector"), term.LabelSelector),
		check.LabelSelector(path.Child("namespaceSelector"), term.NamespaceSelector),
		labelKeys(term.MatchLabelKeys, path.Child("matchLabelKeys")),
		labelKeys(term.MismatchLabelKeys, path.Child("mismatchLabelKeys")),
	)
	for _, ns := range term.Namespaces {
		errs = append(errs, check.Invalid(path.Child("namespace"), ns, validation.IsDNS1123Label(ns))...)
	}
	return append(errs, topologyKey(term.TopologyKey, path.Child("topologyKey"))...)
}
