package rbac

import (
	"iter"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// key names an object; cluster-scoped roles have no namespace.
type key struct{ namespace, name string }

// subject is a user, or all users of a group.
type subject struct {
	group bool
	name  string
}

// grant is a binding of a role to one subject.
type grant struct {
	namespace string // where it applies; empty: everywhere
	binding   string // for the reason of a decision
	role      rbacv1.RoleRef
	to        rbacv1.Subject
}

// index maps subjects to rules. It is immutable and built again after a change.
type index struct {
	roles  map[key]client.Object // Roles and ClusterRoles
	grants map[subject][]grant
}

func newIndex(objects map[schema.GroupVersionResource]map[key]client.Object) *index {
	x := &index{roles: map[key]client.Object{}, grants: map[subject][]grant{}}
	for _, of := range objects {
		for k, obj := range of {
			switch obj := obj.(type) {
			case *rbacv1.Role, *rbacv1.ClusterRole:
				x.roles[k] = obj
			case *rbacv1.RoleBinding:
				x.bind(grant{namespace: obj.Namespace, binding: describe("RoleBinding", obj.Name+"/"+obj.Namespace),
					role: obj.RoleRef}, obj.Subjects)
			case *rbacv1.ClusterRoleBinding:
				x.bind(grant{binding: describe("ClusterRoleBinding", obj.Name), role: obj.RoleRef}, obj.Subjects)
			}
		}
	}
	return x
}

func (x *index) bind(g grant, to []rbacv1.Subject) {
	for _, s := range to {
		g.to = s
		at := subject{name: s.Name}
		switch s.Kind {
		case rbacv1.UserKind:
		case rbacv1.GroupKind:
			at.group = true
		case rbacv1.ServiceAccountKind:
			if s.Namespace == "" {
				s.Namespace = g.namespace
			}
			at.name = auth.ServiceAccountName(s.Namespace, s.Name)
		default:
			continue
		}
		x.grants[at] = append(x.grants[at], g)
	}
}

// grantsOf returns the grants of u in the namespace and in the whole cluster.
func (x *index) grantsOf(u auth.User, namespace string) iter.Seq[*grant] {
	return func(yield func(*grant) bool) {
		if !each(x.grants[subject{name: u.Name}], namespace, yield) {
			return
		}
		for _, group := range u.Groups {
			if !each(x.grants[subject{group: true, name: group}], namespace, yield) {
				return
			}
		}
	}
}

func each(all []grant, namespace string, yield func(*grant) bool) bool {
	for i := range all {
		if g := &all[i]; g.namespace == "" || g.namespace == namespace {
			if !yield(g) {
				return false
			}
		}
	}
	return true
}

// rules returns the rules of a grant's role. It returns false if the role does not exist.
func (x *index) rules(g *grant) ([]rbacv1.PolicyRule, bool) {
	k := key{name: g.role.Name}
	if g.role.Kind == "Role" {
		k.namespace = g.namespace
	}
	switch role := x.roles[k].(type) {
	case *rbacv1.Role:
		return role.Rules, true
	case *rbacv1.ClusterRole:
		return role.Rules, true
	}
	return nil, false
}
