package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func namespaceResource() kind.Resource {
	return kind.Resource{
		GVR:          client.Namespaces,
		Kind:         "Namespace",
		ShortNames:   []string{"ns"},
		Subresources: append(kind.Parts("status"), kind.Subresource{Name: "finalize", Verbs: []string{"update"}, Part: true}),
		New:          func() kind.Object { return new(corev1.Namespace) },
		ValidName:    apivalidation.NameIsDNSLabel,
		Verbs:        []string{"create", "delete", "get", "list", "patch", "update", "watch"}, // no deletecollection
		Default:      namespaceDefault,
		Prepare:      namespacePrepare,
		Validate:     namespaceValidate,
		BlocksDeletion: func(obj kind.Object) bool {
			return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0
		},
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"status.phase": string(obj.(*corev1.Namespace).Status.Phase)}
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Status", "Active or Terminating.",
				func(n *corev1.Namespace) string { return string(n.Status.Phase) }),
			table.Age(),
		},
	}
}

// namespaceDefault labels the namespace with its name, because selectors rely on it.
func namespaceDefault(obj kind.Object) {
	ns := obj.(*corev1.Namespace)
	if ns.Labels[corev1.LabelMetadataName] == ns.Name || ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// namespacePrepare allows only the subresource finalize to change spec.finalizers. It sets the phase to Terminating
// when the deletion begins.
func namespacePrepare(next, cur kind.Object, subresource string) {
	ns := next.(*corev1.Namespace)
	if cur == nil {
		ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
			ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
		}
		return
	}
	old := cur.(*corev1.Namespace)
	if subresource != "finalize" {
		ns.Spec = *old.Spec.DeepCopy()
	}
	if subresource != "status" {
		ns.Status = *old.Status.DeepCopy()
	}
	if subresource == "delete" {
		ns.Status.Phase = corev1.NamespaceTerminating
	}
}

func namespaceValidate(next, cur kind.Object, subresource string) field.ErrorList {
	ns := next.(*corev1.Namespace)
	var errs field.ErrorList
	for i, name := range ns.Spec.Finalizers {
		errs = append(errs, namespaceFinalizer(field.NewPath("spec", "finalizers").Index(i), string(name))...)
	}
	if cur == nil || subresource != "status" {
		return errs
	}
	return append(errs, namespacePhase(ns)...)
}

// namespaceFinalizer checks the name of a finalizer. Only "kubernetes" needs no domain prefix.
func namespaceFinalizer(path *field.Path, name string) field.ErrorList {
	if name == string(corev1.FinalizerKubernetes) {
		return nil
	}
	if errs := check.Invalid(path, name, validation.IsQualifiedName(name)); len(errs) > 0 {
		return errs
	}
	return validation.IsDomainPrefixedKey(path, name)
}

// namespacePhase requires Terminating while the namespace is being deleted, and Active otherwise.
func namespacePhase(ns *corev1.Namespace) field.ErrorList {
	path, deleting := field.NewPath("status", "phase"), ns.DeletionTimestamp != nil
	if deleting && ns.Status.Phase != corev1.NamespaceTerminating {
		return field.ErrorList{field.Invalid(path, ns.Status.Phase,
			"may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	if !deleting && ns.Status.Phase != corev1.NamespaceActive {
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	}
	return nil
}
