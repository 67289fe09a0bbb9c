// Package clusterrole computes the rules of aggregated ClusterRoles, such as admin, edit and view.
package clusterrole

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules of the roles that aggregate selects, in the order of its selectors and of the roles'
// names, without duplicates. The aggregate itself is never one of them. It fails if a selector is invalid.
func Aggregate(aggregate *rbacv1.ClusterRole, roles []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	roles = slices.SortedFunc(slices.Values(roles),
		func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	var rules []rbacv1.PolicyRule
	for i := range aggregate.AggregationRule.ClusterRoleSelectors {
		sel, err := metav1.LabelSelectorAsSelector(&aggregate.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, role := range roles {
			if role.Name != aggregate.Name && sel.Matches(labels.Set(role.Labels)) {
				rules = withRules(rules, role.Rules)
			}
		}
	}
	return rules, nil
}

func withRules(have, more []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, rule := range more {
		if !slices.ContainsFunc(have, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
			have = append(have, *rule.DeepCopy())
		}
	}
	return have
}
