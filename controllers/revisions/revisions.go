// Package revisions maintains the ControllerRevisions of DaemonSets and StatefulSets: one for each pod template that an
// owner had, with increasing numbers, so that kubectl rollout can show and restore them.
//
//   - Keeper.Sync: finds or creates the revision of the current template.
//   - Keeper.Trim: deletes the oldest revisions.
//   - Data, Template: what a revision contains.
package revisions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

const (
	// maxPrefix is the maximum length of the owner's name in a revision's name (upstream ControllerRevisionName).
	maxPrefix = 223
	// maxCollisions is the maximum number of names that one sync tries.
	maxCollisions = 10
)

// Keeper maintains the revisions of owners of one kind.
type Keeper struct {
	Client client.Client
	Kind   schema.GroupVersionKind
	// HashLabel is the label of a revision that contains the hash in its name.
	HashLabel string
}

// Owner contains what a Keeper needs to know about an owner.
type Owner struct {
	Object     client.Object
	Selector   labels.Selector
	Template   *corev1.PodTemplateSpec
	Collisions *int32 // status.collisionCount
}

// History contains an owner's revisions.
type History struct {
	// Current is the revision of the owner's template.
	Current *appsv1.ControllerRevision
	// Others are the other revisions, lowest number first. Adopted ones may have the same template as Current.
	Others []*appsv1.ControllerRevision
	// Collisions is the next status.collisionCount.
	Collisions *int32
}

// Adopter adopts revisions for owners.
func (k Keeper) Adopter() owned.Adopter[*appsv1.ControllerRevision] {
	return owned.Adopter[*appsv1.ControllerRevision]{Client: k.Client, Kind: k.Kind,
		Adoptive: func(r *appsv1.ControllerRevision) bool { return r.DeletionTimestamp == nil }}
}

// Sync adopts and releases revisions of the owner among known, and finds the revision of its template, or creates it.
// If another revision has a higher number, for example after an undo, Sync gives this revision the highest number.
func (k Keeper) Sync(ctx context.Context, o Owner, known []*appsv1.ControllerRevision) (History, error) {
	mine, err := k.Adopter().Of(ctx, o.Object, o.Selector, known)
	if err != nil {
		return History{}, err
	}
	h := History{Others: mine, Collisions: o.Collisions}
	slices.SortFunc(h.Others, compare)
	data, err := Data(o.Template)
	if err != nil {
		return History{}, err
	}
	for i := len(h.Others) - 1; i >= 0 && h.Current == nil; i-- {
		if r := h.Others[i]; r.DeletionTimestamp == nil && Same(r, data, o.Template) {
			h.Current, h.Others = r, slices.Delete(h.Others, i, i+1)
		}
	}
	next := int64(1)
	if n := len(h.Others); n > 0 {
		next = h.Others[n-1].Revision + 1
	}
	switch {
	case h.Current == nil:
		err = k.create(ctx, o, &h, data, next)
	case h.Current.Revision < next:
		h.Current, err = client.Update(ctx, k.Client, h.Current, "", func(r *appsv1.ControllerRevision) error {
			r.Revision = max(r.Revision, next)
			return nil
		})
	}
	return h, err
}

// compare orders by number, lowest first, then by age, oldest first.
func compare(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name))
}

// create stores a revision. It tries the next name if the name belongs to a revision with another template or owner.
func (k Keeper) create(ctx context.Context, o Owner, h *History, data []byte, number int64) error {
	for range maxCollisions {
		r := k.revision(o, data, number, owned.Hash(data, h.Collisions))
		name := r.Name
		made, err := k.Client.Create(ctx, r)
		if apierrors.IsAlreadyExists(err) {
			made, err = k.Client.Get(ctx,
				client.Ref{Resource: client.ControllerRevisions, Namespace: o.Object.GetNamespace(), Name: name})
		}
		if err != nil {
			return err
		}
		if r := made.(*appsv1.ControllerRevision); metav1.IsControlledBy(r, o.Object) && Same(r, data, o.Template) {
			h.Current = r
			return nil
		}
		count := int32(1)
		if h.Collisions != nil {
			count += *h.Collisions
		}
		h.Collisions = &count
	}
	return fmt.Errorf("no free name for a revision of %s %s/%s", k.Kind.Kind, o.Object.GetNamespace(), o.Object.GetName())
}

func (k Keeper) revision(o Owner, data []byte, number int64, hash string) *appsv1.ControllerRevision {
	prefix := o.Object.GetName()
	labels := maps.Clone(o.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[k.HashLabel] = hash
	return &appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Object.GetNamespace(), Name: prefix[:min(len(prefix), maxPrefix)] + "-" + hash,
			Labels: labels, Annotations: maps.Clone(o.Object.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{k.Adopter().Ref(o.Object)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
}

// Trim deletes the revisions with the lowest numbers beyond the number to keep. all are sorted as in History. Live
// revisions are kept and not counted. A negative number keeps all.
func (k Keeper) Trim(ctx context.Context, all []*appsv1.ControllerRevision, keep int,
	live func(*appsv1.ControllerRevision) bool) error {
	dead := slices.DeleteFunc(slices.Clone(all),
		func(r *appsv1.ControllerRevision) bool { return r.DeletionTimestamp != nil || live(r) })
	if keep < 0 {
		return nil
	}
	for _, r := range dead[:max(0, len(dead)-keep)] {
		_, err := k.Client.Delete(ctx, client.RefOf(r),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if err != nil && !owned.Gone(err) {
			return err
		}
	}
	return nil
}

// Data returns the content of a template's revision: a strategic merge patch of the owner that replaces
// spec.template, byte for byte the same as kubectl computes.
func Data(template *corev1.PodTemplateSpec) ([]byte, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var raw any
	fields["$patch"] = json.RawMessage(`"replace"`)
	if text, err = json.Marshal(map[string]any{"spec": map[string]any{"template": fields}}); err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text)) // decoded once more to sort all fields
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil {
		return nil, err
	}
	return json.Marshal(raw)
}

// Template returns the template that a revision contains.
func Template(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &patch); err != nil {
		return nil, fmt.Errorf("ControllerRevision %s/%s: %w", r.Namespace, r.Name, err)
	}
	return &patch.Spec.Template, nil
}

// Same reports whether a revision has the template; data is the template's Data. It also recognizes revisions that
// another version of Kubernetes has encoded differently.
func Same(r *appsv1.ControllerRevision, data []byte, template *corev1.PodTemplateSpec) bool {
	if bytes.Equal(r.Data.Raw, data) {
		return true
	}
	its, err := Template(r)
	return err == nil && equality.Semantic.DeepEqual(its, template)
}
