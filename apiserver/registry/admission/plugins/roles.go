package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/auth/rbac/validation"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// Roles resolves the permissions of users.
type Roles interface {
	auth.Authorizer
	// Rules returns all rules of a user in a namespace. The error names the roles that it failed to read.
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

// roleEscalation prevents users from granting permissions that they do not have. Exceptions are the verb escalate on
// the role and the verb bind on the bound role (upstream: the policy-based storages of registry/rbac). It does not
// apply to system:masters and to this process.
func roleEscalation(c client.Client, roles Roles) admission.Plugin {
	return admission.Plugin{Name: "RoleEscalation", Validate: func(ctx context.Context, r *admission.Request) error {
		user, ok := auth.Known(ctx)
		if roles == nil || !ok || slices.Contains(user.Groups, auth.Masters) || r.Object == nil || r.Subresource != "" {
			return nil
		}
		e := escalation{client: c, roles: roles, user: user, Request: r}
		switch next := r.Object.(type) {
		case *rbacv1.Role:
			return e.role(ctx, next.Rules, false)
		case *rbacv1.ClusterRole:
			old, _ := r.Old.(*rbacv1.ClusterRole)
			return e.role(ctx, next.Rules, next.AggregationRule != nil || old != nil && old.AggregationRule != nil)
		case *rbacv1.RoleBinding:
			return e.binding(ctx, next.RoleRef, next.Subjects)
		case *rbacv1.ClusterRoleBinding:
			return e.binding(ctx, next.RoleRef, next.Subjects)
		}
		return nil
	}}
}

// escalation is one write of a role or a binding.
type escalation struct {
	*admission.Request
	client client.Client
	roles  Roles
	user   auth.User
}

// role requires that the user has the rules. For an aggregated role, which may get any rule, it requires all
// permissions.
func (e escalation) role(ctx context.Context, rules []rbacv1.PolicyRule, aggregate bool) error {
	if e.onlyMetadataChanged() {
		return nil
	}
	name := ""
	if e.Operation == admission.Update {
		name = e.Name
	}
	if ok, err := e.may(ctx, "escalate", e.Resource.GVR.Resource, name); ok || err != nil {
		return err
	}
	all := []string{"*"}
	admin := []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}
	if aggregate && e.missing(ctx, admin) != nil {
		return e.Forbid(errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return e.confirm(ctx, rules)
}

// onlyMetadataChanged reports whether the update changes only the fields that the garbage collector uses.
func (e escalation) onlyMetadataChanged() bool {
	if e.Old == nil {
		return false
	}
	next := e.Object.DeepCopyObject().(kind.Object)
	next.SetOwnerReferences(e.Old.GetOwnerReferences())
	next.SetFinalizers(e.Old.GetFinalizers())
	next.SetManagedFields(e.Old.GetManagedFields())
	next.SetResourceVersion(e.Old.GetResourceVersion())
	return equality.Semantic.DeepEqual(next, e.Old)
}

// binding requires that the user has the rules of the bound role.
func (e escalation) binding(ctx context.Context, role rbacv1.RoleRef, subjects []rbacv1.Subject) error {
	if e.onlyMetadataChanged() || e.sameBinding(role, subjects) {
		return nil
	}
	resource := client.ClusterRoles.Resource
	if role.Kind == "Role" {
		resource = client.Roles.Resource
	}
	if ok, err := e.may(ctx, "bind", resource, role.Name); ok || err != nil {
		return err
	}
	rules, err := e.rulesOf(ctx, role)
	if err != nil {
		return err
	}
	return e.confirm(ctx, rules)
}

// sameBinding reports whether the update grants no permission.
func (e escalation) sameBinding(role rbacv1.RoleRef, subjects []rbacv1.Subject) bool {
	switch old := e.Old.(type) {
	case *rbacv1.RoleBinding:
		return old.RoleRef == role && equality.Semantic.DeepEqual(old.Subjects, subjects)
	case *rbacv1.ClusterRoleBinding:
		return old.RoleRef == role && equality.Semantic.DeepEqual(old.Subjects, subjects)
	}
	return false
}

func (e escalation) rulesOf(ctx context.Context, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	if ref.Kind == "Role" {
		role, err := client.Get[*rbacv1.Role](ctx, e.client, e.Namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	role, err := client.Get[*rbacv1.ClusterRole](ctx, e.client, "", ref.Name)
	if err != nil {
		return nil, err
	}
	return role.Rules, nil
}

func (e escalation) may(ctx context.Context, verb, resource, name string) (bool, error) {
	ok, _, err := e.roles.Authorize(ctx, auth.Attributes{
		User: e.user, Verb: verb, Group: rbacv1.GroupName, Version: "*", Resource: resource,
		Namespace: e.Namespace, Name: name})
	return ok, err
}

func (e escalation) confirm(ctx context.Context, rules []rbacv1.PolicyRule) error {
	if err := e.missing(ctx, rules); err != nil {
		return e.Forbid(err)
	}
	return nil
}

// missing returns an error, in upstream's words, with the rules that the user does not have.
func (e escalation) missing(ctx context.Context, rules []rbacv1.PolicyRule) error {
	have, unknown := e.roles.Rules(ctx, e.user, e.Namespace)
	ok, lacking := validation.Covers(have, rules)
	if ok {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		e.user.Name, e.user.Groups, strings.Join(describeRules(lacking), "\n"))
	if unknown != nil {
		text += fmt.Sprintf("; resolution errors: [%v]", unknown)
	}
	return errors.New(text)
}

// describeRules formats rules as upstream does. Rules that differ only in the verb share a line.
func describeRules(rules []rbacv1.PolicyRule) []string {
	var order []string
	verbs := map[string][]string{}
	for _, r := range rules {
		var parts []string
		for _, field := range []struct {
			name   string
			values []string
		}{
			{"APIGroups", r.APIGroups}, {"Resources", r.Resources},
			{"NonResourceURLs", r.NonResourceURLs}, {"ResourceNames", r.ResourceNames},
		} {
			if len(field.values) > 0 {
				parts = append(parts, fmt.Sprintf("%s:%q", field.name, field.values))
			}
		}
		rule := strings.Join(parts, ", ")
		if verbs[rule] == nil {
			order = append(order, rule)
		}
		verbs[rule] = append(verbs[rule], r.Verbs...)
	}
	slices.Sort(order)
	for i, rule := range order {
		order[i] = fmt.Sprintf("{%s, Verbs:%q}", rule, verbs[rule])
	}
	return order
}
