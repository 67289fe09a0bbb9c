package managed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/json"

	"monopod/apiserver/codec/quantity"
	"monopod/apiserver/registry/kind"
)

const (
	// clientSide is the manager of what kubectl applied on the client's side
	// (upstream: kubectl's FieldManagerClientSideApply).
	clientSide = "kubectl-client-side-apply"
	// beforeFirst is the manager of all else that an untracked object holds
	// (upstream: skipNonAppliedManager).
	beforeFirst = "before-first-apply"
	// opening makes a field manager track an object; it is taken out again.
	opening = "opening"
)

// begin gives an untracked object that kubectl applied on the client's side its
// first managers: what was applied so and still stands is kubectl's, all else is
// nobody's in particular. kubectl takes over its own fields at its first
// server-side apply and drops those that are not in the manifest; what
// controllers, admission or kubectl scale have set since must not be among them.
// Without that annotation cur stays as it is.
func begin(m *managedfields.FieldManager, t Target, cur kind.Object) (kind.Object, error) {
	applied := t.lastApplied(cur)
	if len(cur.GetManagedFields()) > 0 || applied == nil {
		return cur, nil
	}
	old := t.empty()
	old.SetManagedFields(openingEntry(t))
	byKubectl, err := m.Update(old, applied, clientSide)
	if err != nil {
		return nil, err
	}
	all, err := m.Update(byKubectl, cur.DeepCopyObject(), beforeFirst)
	if err != nil {
		return nil, err
	}
	next := all.(kind.Object)
	next.SetManagedFields(slices.DeleteFunc(next.GetManagedFields(), isOpening))
	return next, nil
}

// lastApplied is the object as kubectl last applied it on the client's side, with
// its defaults, or nil: it was not, or as another version, or what is noted about
// it cannot be read.
func (t Target) lastApplied(cur kind.Object) kind.Object {
	text := cur.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if text == "" || t.Subresource != "" || quantity.CheckJSON([]byte(text), t.Resource.New()) != nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(text), &u.Object); err != nil || u.GroupVersionKind() != t.kind() {
		return nil
	}
	obj, err := t.forms().typed(u, t.kind())
	if err != nil {
		return nil
	}
	notes := obj.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[corev1.LastAppliedConfigAnnotation] = text
	obj.SetAnnotations(notes)
	obj.SetManagedFields(nil)
	if t.Resource.Default != nil {
		t.Resource.Default(obj)
	}
	return obj
}

// openingEntry is a manager of a field that no object has.
func openingEntry(t Target) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: opening, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: t.kind().GroupVersion().String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:opening":{}}}}`),
	}}
}

func isOpening(e metav1.ManagedFieldsEntry) bool { return e.Manager == opening }
