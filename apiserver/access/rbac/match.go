package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"monopod/apiserver/auth"
)

// Allows reports whether one of the rules allows a.
func Allows(rules []rbacv1.PolicyRule, a *auth.Attributes) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return allows(&r, a) })
}

// allows reports whether the rule allows a. Verbs, groups and resources match by name or "*", subresources by
// "resource/sub" or "*/sub", paths also by a prefix that ends in "*".
func allows(rule *rbacv1.PolicyRule, a *auth.Attributes) bool {
	if !oneOf(rule.Verbs, a.Verb) {
		return false
	}
	if a.Path != "" {
		return slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool { return matchesPath(url, a.Path) })
	}
	return oneOf(rule.APIGroups, a.Group) && hasResource(rule.Resources, a.Resource, a.Subresource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name))
}

func oneOf(allowed []string, value string) bool {
	for _, one := range allowed {
		if one == value || one == "*" {
			return true
		}
	}
	return false
}

// hasResource compares the resource and its subresource as one string, as upstream, because an access review may
// contain the resource "pods/log" without a subresource.
func hasResource(allowed []string, resource, sub string) bool {
	if sub != "" {
		resource += "/" + sub
	}
	return oneOf(allowed, resource) || sub != "" && slices.Contains(allowed, "*/"+sub)
}

func matchesPath(allowed, path string) bool {
	if prefix, ok := strings.CutSuffix(allowed, "*"); ok {
		return strings.HasPrefix(path, strings.TrimRight(prefix, "*"))
	}
	return allowed == path
}
