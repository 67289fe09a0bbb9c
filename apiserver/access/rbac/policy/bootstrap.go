package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Bootstrap creates the missing objects of Defaults, and restores missing rules, selectors and subjects of
// existing ones. It keeps additions, and does not change objects whose annotation autoupdate is "false". A
// binding to another role is replaced.
func Bootstrap(ctx context.Context, c client.Client) error {
	all, err := Defaults()
	if err != nil {
		return err
	}
	group, ctx := guard.With(ctx) // concurrently, so that they share a commit
	for _, want := range all {
		group.Do(func() error {
			if err := reconcile(ctx, c, want); err != nil {
				return fmt.Errorf("%T %s: %w", want, want.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func reconcile(ctx context.Context, c client.Client, want client.Object) error {
	ref := client.RefOf(want)
	have, err := c.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return create(ctx, c, want)
	case err != nil || have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false":
		return err
	case rebound(have, want):
		uid := have.GetUID()
		if _, err := c.Delete(ctx, ref, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			return err
		}
		return create(ctx, c, want)
	}
	_, err = c.Update(ctx, ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(client.Object)
		// Add what the object lacks of want.
		next.SetLabels(with(next.GetLabels(), want.GetLabels()))
		next.SetAnnotations(with(next.GetAnnotations(), want.GetAnnotations()))
		switch next := next.(type) {
		case *rbacv1.Role:
			next.Rules = withRules(next.Rules, want.(*rbacv1.Role).Rules)
		case *rbacv1.ClusterRole:
			completeClusterRole(next, want.(*rbacv1.ClusterRole))
		case *rbacv1.RoleBinding:
			next.Subjects = withSubjects(next.Subjects, want.(*rbacv1.RoleBinding).Subjects)
		case *rbacv1.ClusterRoleBinding:
			next.Subjects = withSubjects(next.Subjects, want.(*rbacv1.ClusterRoleBinding).Subjects)
		}
		if equality.Semantic.DeepEqual(next, cur) {
			return cur, nil
		}
		return next, nil
	})
	return err
}

func create(ctx context.Context, c client.Client, want client.Object) error {
	_, err := c.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) { // another server on the same state created it first
		return nil
	}
	return err
}

// rebound reports whether a binding, whose role is immutable, refers to another role.
func rebound(have, want client.Object) bool {
	switch have := have.(type) {
	case *rbacv1.RoleBinding:
		return have.RoleRef != want.(*rbacv1.RoleBinding).RoleRef
	case *rbacv1.ClusterRoleBinding:
		return have.RoleRef != want.(*rbacv1.ClusterRoleBinding).RoleRef
	}
	return false
}

// completeClusterRole does not change the rules of an aggregated role, which its controller sets.
func completeClusterRole(next, want *rbacv1.ClusterRole) {
	if want.AggregationRule == nil {
		next.Rules = withRules(next.Rules, want.Rules)
		return
	}
	if next.AggregationRule == nil {
		next.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, sel := range want.AggregationRule.ClusterRoleSelectors {
		have := &next.AggregationRule.ClusterRoleSelectors
		if !slices.ContainsFunc(*have, func(s metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, sel) }) {
			*have = append(*have, sel)
		}
	}
}

// with returns have with the missing keys of want; existing values are kept.
func with(have, want map[string]string) map[string]string {
	all := maps.Clone(want)
	maps.Copy(all, have)
	return all
}

func withRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if equality.Semantic.DeepEqual(have, want) {
		return have
	}
	_, lacking := validation.Covers(have, want)
	return append(have, lacking...)
}

func withSubjects(have, want []rbacv1.Subject) []rbacv1.Subject {
	for _, s := range want {
		if !slices.Contains(have, s) {
			have = append(have, s)
		}
	}
	return have
}
