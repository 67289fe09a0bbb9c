package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func roleBindingResource() kind.Resource {
	return kind.Resource{
		GVR:        client.RoleBindings,
		Kind:       "RoleBinding",
		Namespaced: true,
		New:        func() kind.Object { return new(rbacv1.RoleBinding) },
		ValidName:  rbacName,
		Default:    func(obj kind.Object) { fieldsOf(obj).setDefaults() },
		Validate:   bindingValidate,
		Columns:    bindingColumns(),
	}
}

func clusterRoleBindingResource() kind.Resource {
	return kind.Resource{
		GVR:       client.ClusterRoleBindings,
		Kind:      "ClusterRoleBinding",
		New:       func() kind.Object { return new(rbacv1.ClusterRoleBinding) },
		ValidName: rbacName,
		Default:   func(obj kind.Object) { fieldsOf(obj).setDefaults() },
		Validate:  bindingValidate,
		Columns:   bindingColumns(),
	}
}

// bindingFields contains the fields that both kinds of bindings have.
type bindingFields struct {
	role       *rbacv1.RoleRef
	subjects   []rbacv1.Subject
	namespaced bool
}

func fieldsOf(obj kind.Object) bindingFields {
	if b, ok := obj.(*rbacv1.RoleBinding); ok {
		return bindingFields{&b.RoleRef, b.Subjects, true}
	}
	b := obj.(*rbacv1.ClusterRoleBinding)
	return bindingFields{&b.RoleRef, b.Subjects, false}
}

// setDefaults sets the default API groups.
func (b bindingFields) setDefaults() {
	kind.SetIfZero(&b.role.APIGroup, rbacv1.GroupName)
	for i := range b.subjects {
		if s := &b.subjects[i]; s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind {
			kind.SetIfZero(&s.APIGroup, rbacv1.GroupName)
		}
	}
}

// bindingValidate checks the role and the subjects. roleRef is immutable.
func bindingValidate(next, cur kind.Object, _ string) field.ErrorList {
	b, at := fieldsOf(next), field.NewPath("roleRef")
	kinds := []string{"ClusterRole"}
	if b.namespaced {
		kinds = append(kinds, "Role")
	}
	errs := slices.Concat(supported(at.Child("apiGroup"), b.role.APIGroup, rbacv1.GroupName),
		supported(at.Child("kind"), b.role.Kind, kinds...),
		check.Named(at.Child("name"), b.role.Name, func(name string) []string { return rbacName(name, false) }))
	for i := range b.subjects {
		errs = append(errs, subject(&b.subjects[i], b.namespaced, field.NewPath("subjects").Index(i))...)
	}
	if cur != nil && *b.role != *fieldsOf(cur).role {
		errs = append(errs, field.Invalid(at, *b.role, "cannot change roleRef"))
	}
	return errs
}

// subject checks a user, group or service account. A ClusterRoleBinding must contain the namespace of a service
// account.
func subject(s *rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	errs := check.Required(at.Child("name"), s.Name)
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		errs = append(errs, check.UnsetOrNamed(at.Child("name"), s.Name, func(name string) []string {
			return validation.ValidateServiceAccountName(name, false)
		})...)
		errs = append(errs, supported(at.Child("apiGroup"), s.APIGroup, "")...)
		if !namespaced {
			errs = append(errs, check.Required(at.Child("namespace"), s.Namespace)...)
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, supported(at.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
	default:
		errs = append(errs,
			supported(at.Child("kind"), s.Kind, rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind)...)
	}
	return errs
}

// supported returns NotSupported even for an empty value, as upstream does for these fields.
func supported(at *field.Path, value string, allowed ...string) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, allowed)}
}

func bindingColumns() []table.Column {
	return []table.Column{
		table.Name(),
		table.Text("Role", "The granted role.", func(obj kind.Object) string {
			role := fieldsOf(obj).role
			return role.Kind + "/" + role.Name
		}),
		table.Age(),
		subjectColumn("Users", rbacv1.UserKind),
		subjectColumn("Groups", rbacv1.GroupKind),
		subjectColumn("ServiceAccounts", rbacv1.ServiceAccountKind),
	}
}

func subjectColumn(name, of string) table.Column {
	return table.Text(name, "Subjects of the binding.", func(obj kind.Object) string {
		var names []string
		for _, s := range fieldsOf(obj).subjects {
			switch {
			case s.Kind == of && of == rbacv1.ServiceAccountKind:
				names = append(names, s.Namespace+"/"+s.Name)
			case s.Kind == of:
				names = append(names, s.Name)
			}
		}
		return strings.Join(names, ", ")
	}).Wide()
}
