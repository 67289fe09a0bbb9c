// Package rbac contains the kinds of roles and role bindings. Package apiserver/auth evaluates them.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		clusterRoleBindingResource(),
		clusterRoleResource(),
		roleBindingResource(),
		roleResource(),
	}
}

func roleResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Roles,
		Kind:       "Role",
		Namespaced: true,
		New:        func() kind.Object { return new(rbacv1.Role) },
		ValidName:  rbacName,
		Validate: func(next, _ kind.Object, _ string) field.ErrorList {
			return rules(next.(*rbacv1.Role).Rules, true)
		},
		Columns: []table.Column{table.Name(), table.CreatedAt()},
	}
}

func clusterRoleResource() kind.Resource {
	return kind.Resource{
		GVR:       client.ClusterRoles,
		Kind:      "ClusterRole",
		New:       func() kind.Object { return new(rbacv1.ClusterRole) },
		ValidName: rbacName,
		Validate: func(next, _ kind.Object, _ string) field.ErrorList {
			role := next.(*rbacv1.ClusterRole)
			return append(rules(role.Rules, false), aggregation(role.AggregationRule)...)
		},
		Columns: []table.Column{table.Name(), table.CreatedAt()},
	}
}

func rules(all []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range all {
		errs = append(errs, rule(&all[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// rule requires either resources or non-resource URLs. Only a ClusterRole may have the latter.
func rule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) > 0 {
		return append(errs, pathRule(r, namespaced, at.Child("nonResourceURLs"))...)
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

func pathRule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if namespaced {
		errs = append(errs, field.Invalid(at, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
	}
	if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
		errs = append(errs,
			field.Invalid(at, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

// aggregation checks the selectors of an aggregation rule.
func aggregation(a *rbacv1.AggregationRule) field.ErrorList {
	if a == nil {
		return nil
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(a.ClusterRoleSelectors) == 0 {
		return field.ErrorList{field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil")}
	}
	var errs field.ErrorList
	for i := range a.ClusterRoleSelectors {
		errs = append(errs, selector(&a.ClusterRoleSelectors[i], at.Index(i))...)
	}
	return errs
}

func selector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

// rbacName accepts any path segment, because names of roles often contain colons.
func rbacName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
