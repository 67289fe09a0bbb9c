package managed

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/json"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/registry/kind"
)

const (
	// clientSide is the manager of fields that kubectl applied client-side (upstream: FieldManagerClientSideApply).
	clientSide = "kubectl-client-side-apply"
	// beforeFirst is the manager of all other fields of an untracked object (upstream: skipNonAppliedManager).
	beforeFirst = "before-first-apply"
	// temporaryManager is the manager of an entry by which upstream's field manager starts to track an object.
	temporaryManager = "opening"
)

// beginTracking adds the first managers to an untracked object that kubectl applied client-side: kubectl for the fields
// that still have the applied values, beforeFirst for the others. At its first server-side apply kubectl takes over its
// own fields and removes those that are not in the manifest; these must not include fields that controllers, admission
// or kubectl scale have set. Without kubectl's annotation, beginTracking returns cur unchanged.
func beginTracking(m *managedfields.FieldManager, t Target, cur kind.Object) (kind.Object, error) {
	applied := t.lastApplied(cur)
	if len(cur.GetManagedFields()) > 0 || applied == nil {
		return cur, nil
	}
	old := t.empty()
	old.SetManagedFields([]metav1.ManagedFieldsEntry{{ // of a field that no object has
		Manager: temporaryManager, Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: t.kind().GroupVersion().String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:opening":{}}}}`),
	}})
	byKubectl, err := m.Update(old, applied, clientSide)
	if err != nil {
		return nil, err
	}
	all, err := m.Update(byKubectl, cur.DeepCopyObject(), beforeFirst)
	if err != nil {
		return nil, err
	}
	next := all.(kind.Object)
	next.SetManagedFields(slices.DeleteFunc(next.GetManagedFields(),
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == temporaryManager }))
	return next, nil
}

// lastApplied returns the object of the last client-side apply, with defaults; nil: there is none in this version, or
// the annotation is invalid.
func (t Target) lastApplied(cur kind.Object) kind.Object {
	text := cur.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if text == "" || t.Subresource != "" || bounded.CheckJSONQuantities([]byte(text), t.Resource.New()) != nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(text), &u.Object); err != nil ||
		u.GroupVersionKind() != t.kind() {
		return nil
	}
	obj, err := converter{t}.typed(u, t.kind())
	if err == nil && t.untyped() { // with its defaults
		if obj, err = t.fromMergeable(obj); err == nil {
			obj, err = toMergeable(obj)
		}
	}
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
	if t.Resource.Default == nil {
		return obj
	}
	if obj, err = t.fromMergeable(obj); err == nil {
		t.Resource.Default(obj)
		obj, err = toMergeable(obj)
	}
	if err != nil {
		return nil
	}
	return obj
}
