// Package rbac contains the kinds of roles and role bindings. Package apiserver/auth evaluates them.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
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
			errs, at := rules(role.Rules, false), field.NewPath("aggregationRule", "clusterRoleSelectors")
			if role.AggregationRule == nil {
				return errs
			}
			selectors := role.AggregationRule.ClusterRoleSelectors
			if len(selectors) == 0 {
				errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
			}
			for i := range selectors {
				errs = append(errs, check.LabelSelector(at.Index(i), &selectors[i])...)
			}
			return errs
		},
		Columns: []table.Column{table.Name(), table.CreatedAt()},
	}
}

// rules requires either resources or non-resource URLs in each rule. Only a ClusterRole may have the latter.
func rules(all []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range all {
		r, at := &all[i], field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if urls := at.Child("nonResourceURLs"); len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(urls, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
				errs = append(errs,
					field.Invalid(urls, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

// rbacName accepts any path segment, because names of roles often contain colons.
func rbacName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
