package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

func resourceQuotaResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ResourceQuotas,
		Kind:         "ResourceQuota",
		Namespaced:   true,
		ShortNames:   []string{"quota"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(corev1.ResourceQuota) },
		Prepare: kind.WithoutGeneration(func(obj kind.Object) (*corev1.ResourceQuotaSpec, *corev1.ResourceQuotaStatus) {
			q := obj.(*corev1.ResourceQuota)
			return &q.Spec, &q.Status
		}),
		Validate:   quotaValidate,
		Durability: quotaDurability,
		Columns: []table.Column{
			table.Name(),
			table.Text("Request", "Used and hard amounts of requests and counts.", quotaCell(false)),
			table.Text("Limit", "Used and hard amounts of limits.", quotaCell(true)),
			table.Age(),
		},
	}
}

// quotaCell returns the cell with "used/hard" of all limits, or of all other resources.
func quotaCell(limits bool) func(*corev1.ResourceQuota) string {
	return func(q *corev1.ResourceQuota) string {
		var cells []string
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			if strings.HasPrefix(string(name), "limits.") != limits {
				continue
			}
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			cells = append(cells, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
		}
		return strings.Join(cells, ", ")
	}
}

// quotaDurability makes writes of the status volatile, because the controller can compute it again.
func quotaDurability(cur, next kind.Object) store.Durability {
	if cur == nil || next == nil {
		return store.Durable
	}
	was, is := *cur.(*corev1.ResourceQuota), *next.(*corev1.ResourceQuota)
	was.Status, was.ResourceVersion, was.ManagedFields = is.Status, is.ResourceVersion, is.ManagedFields
	if equality.Semantic.DeepEqual(&was, &is) {
		return store.Volatile
	}
	return store.Durable
}

func quotaValidate(next, cur kind.Object, subresource string) field.ErrorList {
	q := next.(*corev1.ResourceQuota)
	status := field.NewPath("status")
	if subresource == "status" {
		return append(quotaAmounts(q.Status.Hard, status.Child("hard")), quotaAmounts(q.Status.Used, status.Child("used"))...)
	}
	spec := field.NewPath("spec")
	errs, at := quotaAmounts(q.Spec.Hard, spec.Child("hard")), spec.Child("scopes")
	for _, scope := range q.Spec.Scopes {
		if problem := scopeProblem(scope, q.Spec.Hard); problem != "" {
			errs = append(errs, field.Invalid(at, q.Spec.Scopes, problem))
		}
	}
	if scopesConflict(q.Spec.Scopes) {
		errs = append(errs, field.Invalid(at, q.Spec.Scopes, "conflicting scopes"))
	}
	if selector := q.Spec.ScopeSelector; selector != nil {
		exprs := spec.Child("scopeSelector", "matchExpressions")
		var exist []corev1.ResourceQuotaScope
		for i := range selector.MatchExpressions {
			r := &selector.MatchExpressions[i]
			switch problem := scopeProblem(r.ScopeName, q.Spec.Hard); problem {
			case "":
			case "unsupported scope":
				errs = append(errs, field.Invalid(exprs.Child("scopeName"), r.ScopeName, problem))
			default:
				errs = append(errs, field.Invalid(exprs, selector, problem))
			}
			errs = append(errs, scopeOperator(r, exprs)...)
			exist = append(exist, r.ScopeName)
		}
		if scopesConflict(exist) {
			errs = append(errs, field.Invalid(exprs, exist, "conflicting scopes"))
		}
	}
	if cur == nil {
		return errs
	}
	was, is := slices.Clone(cur.(*corev1.ResourceQuota).Spec.Scopes), slices.Clone(q.Spec.Scopes)
	slices.Sort(was)
	slices.Sort(is)
	if !slices.Equal(slices.Compact(was), slices.Compact(is)) {
		errs = append(errs, field.Invalid(at, q.Spec.Scopes, "field is immutable"))
	}
	return errs
}

func quotaAmounts(amounts corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount, path := amounts[name], at.Key(string(name))
		errs = append(errs, resourceName(name, path)...)
		if !strings.Contains(string(name), "/") && !quotaName(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for quotas"))
		}
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(path, amount.String(), "must be greater than or equal to 0"))
		}
		whole := slices.Contains(countedNames(), name) ||
			!check.IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
		if whole && amount.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(path, amount.String(), "must be an integer"))
		}
	}
	return errs
}

// scopeProblem returns upstream's error for an unknown scope, or for a scope that does not apply to a resource in hard;
// empty: none.
func scopeProblem(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) string {
	var tracked []corev1.ResourceName
	switch scope {
	case corev1.ResourceQuotaScopeBestEffort:
		tracked = []corev1.ResourceName{corev1.ResourcePods}
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		tracked = []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
		corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		tracked = []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory,
			corev1.ResourceRequestsCPU,
			corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory}
	default:
		return "unsupported scope"
	}
	for name := range hard {
		if quotaName(name) && !slices.Contains(tracked, name) {
			return "unsupported scope applied to resource"
		}
	}
	return ""
}

// scopesConflict reports whether two of the scopes exclude each other.
func scopesConflict(scopes []corev1.ResourceQuotaScope) bool {
	both := func(a, b corev1.ResourceQuotaScope) bool {
		return slices.Contains(scopes, a) && slices.Contains(scopes, b)
	}
	return both(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) ||
		both(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating)
}

func scopeOperator(r *corev1.ScopedResourceSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	named := r.ScopeName == corev1.ResourceQuotaScopePriorityClass ||
		r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass
	if scopeProblem(r.ScopeName, nil) == "" && !named && r.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs,
			field.Invalid(at.Child("operator"), r.Operator,
				"must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
					"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "+
					"ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"),
				"must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Invalid(at.Child("values"), r.Values,
				"must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}
