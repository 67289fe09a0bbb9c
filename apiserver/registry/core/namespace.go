package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if ns := obj.(*corev1.Namespace); ns.Labels[corev1.LabelMetadataName] != ns.Name && ns.Name != "" {
		metav1.SetMetaDataLabel(&ns.ObjectMeta, corev1.LabelMetadataName, ns.Name)
	}
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

// namespaceValidate requires a domain prefix of finalizers except "kubernetes", and the phase Terminating while the
// namespace is being deleted, Active otherwise.
func namespaceValidate(next, cur kind.Object, subresource string) field.ErrorList {
	ns := next.(*corev1.Namespace)
	var errs field.ErrorList
	for i, finalizer := range ns.Spec.Finalizers {
		path, name := field.NewPath("spec", "finalizers").Index(i), string(finalizer)
		if bad := check.Invalid(path, name, validation.IsQualifiedName(name)); len(bad) > 0 {
			errs = append(errs, bad...)
		} else if finalizer != corev1.FinalizerKubernetes {
			errs = append(errs, validation.IsDomainPrefixedKey(path, name)...)
		}
	}
	if cur == nil || subresource != "status" {
		return errs
	}
	path, deleting := field.NewPath("status", "phase"), ns.DeletionTimestamp != nil
	if deleting && ns.Status.Phase != corev1.NamespaceTerminating {
		errs = append(errs, field.Invalid(path, ns.Status.Phase,
			"may only be 'Terminating' if `deletionTimestamp` is not empty"))
	}
	if !deleting && ns.Status.Phase != corev1.NamespaceActive {
		errs = append(errs, field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty"))
	}
	return errs
}
