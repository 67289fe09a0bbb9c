// Package kind describes the kinds of the API as data: one Resource for each kind, which
// the generic verbs of the registry, discovery and the encoders read.
package kind

import (
	"cmp"
	"context"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// Object is a pointer to a typed Kubernetes object.
type Object = client.Object

// Resource is all there is to say about one kind. Its functions get objects of the type
// that New returns.
type Resource struct {
	GVR          schema.GroupVersionResource
	Kind         string
	ListKind     string // empty: Kind with the suffix List
	Singular     string // empty: Kind in lower case
	Namespaced   bool
	ShortNames   []string
	Categories   []string
	Subresources []Subresource

	// Verbs are the supported verbs; nil: all.
	Verbs []string

	// Ending is set while the resource ends: the message for a creation. Verbs is then what discovery shows; other
	// verbs that it lacks still work.
	Ending string

	// Qualified: the store's name of the resource contains its group, because another group may have a resource of
	// the same name.
	Qualified bool

	// StoredAs is StoreName, for a Qualified resource that need not put it together for each request; empty: it does.
	StoredAs string

	// Schema describes the objects of a kind without a Go type of its own; nil: package definitions does. Such
	// objects are Untyped, and have no protobuf form.
	Schema Schema

	// Deprecated is a warning that every response has; empty: none.
	Deprecated string

	// Inert is the reason why nothing in this process acts on the kind, as a clause that
	// follows a colon; empty: something does. A creation returns it as a warning, and the
	// docs list it.
	Inert string

	// Controller is the name of the controller that acts on the kind: without it the kind is
	// inert. Empty: no single controller.
	Controller string

	// Off is the reason why the kind is inert without its Controller, as a clause like
	// Inert. Empty: the controller is in --controllers, which switches it off.
	Off string

	// Virtual: the server computes the objects and stores none (reviews,
	// componentstatuses). The registry rejects the kind.
	Virtual bool

	// View makes the resource another version of a stored one; nil: it is stored itself.
	View *View

	New func() Object

	// ValidName returns the errors of metadata.name, or with prefix of the part before a
	// generated suffix; nil: a DNS-1123 subdomain.
	ValidName func(name string, prefix bool) []string

	// Default sets the defaults. It must be idempotent.
	Default func(obj Object)

	// Stamp sets the times at which the server notices a change, unless the client does; nil: the kind has none. It runs
	// after Default. cur is nil for a creation.
	Stamp func(next, cur Object, now metav1.Time)

	// Prepare runs after the client's change and before Default and Validate, with
	// correct generic metadata. It resets what this write must not change: cur is nil
	// for a creation; for subresource "" it keeps cur's status, for "status" everything
	// else; "delete" is the first phase of a deletion. It increments the generation of
	// kinds that have one when the spec changes.
	Prepare func(next, cur Object, subresource string)

	// Validate returns all errors of next; cur is the stored object, nil for a creation.
	Validate func(next, cur Object, subresource string) field.ErrorList

	// Grace returns the grace period of a deletion in seconds, 0 for none; asked is the
	// client's, or nil. A nil Grace: no graceful deletion.
	Grace func(cur Object, asked *int64) int64

	// BlocksDeletion reports whether an object that is being deleted must stay although its
	// metadata has no finalizers; nil: never.
	BlocksDeletion func(obj Object) bool

	// Orphans: a deletion without a propagation policy orphans the dependents, as
	// upstream still does for its oldest kinds. OrphanWarning is then returned; empty: none.
	Orphans       bool
	OrphanWarning string

	// Childless: the garbage collector does not follow the kind, so that a deletion adds none of its finalizers and
	// removes them.
	Childless bool

	// ReturnDeleted: an immediate deletion returns the object instead of a Status.
	ReturnDeleted bool

	// Fields returns the fields that field selectors support, besides metadata.name and
	// metadata.namespace.
	Fields func(obj Object) fields.Set
	// Field returns one of Fields, for kinds of which many objects are compared with one field; nil: Fields does.
	Field func(obj Object, name string) string

	// Warnings returns the Warning headers for a valid object. cur is nil for a creation;
	// nil: none.
	Warnings func(next, cur Object) []string

	Columns []table.Column

	// Order is the order of the rows of a Table; nil: by namespace and name, as lists are.
	Order func(a, b Object) int

	// Durability returns the durability of a write; nil: store.Durable.
	Durability func(cur, next Object) store.Durability
}

// Scale maps an object to its scale subresource and back.
type Scale struct {
	Of  func(obj Object) *autoscalingv1.Scale
	Set func(obj Object, scale *autoscalingv1.Scale)
}

// View converts objects that are stored as another resource: events of events.k8s.io/v1
// are stored as those of v1, HorizontalPodAutoscalers of autoscaling/v1 as those of v2.
// Both functions return new objects and do not modify their arguments.
type View struct {
	Of    schema.GroupVersionResource
	Base  *Resource                  // the stored resource, if it is not served; nil: the one that serves Of
	Show  func(stored Object) Object // stored object to the view
	Store func(shown Object) Object  // view to the stored object
	// Converter converts in place of Show and Store, which then convert the metadata only; nil: they convert.
	Converter Converter
}

// Converter converts objects by something that takes its time and may fail: a webhook. The result may be kept with a
// stored object, which is immutable.
type Converter interface {
	// Show converts stored objects to the view, several at once.
	Show(ctx context.Context, stored []Object) ([]Object, error)
	// Convert converts an object that may still change to the view.
	Convert(ctx context.Context, obj Object) (Object, error)
	// Store converts an object of the view to the stored version.
	Store(ctx context.Context, shown Object) (Object, error)
}

// Shown returns a stored object as the view has it.
func (v *View) Shown(ctx context.Context, stored Object) (Object, error) {
	if v.Converter == nil {
		return v.Show(stored), nil
	}
	out, err := v.Converter.Show(ctx, []Object{stored})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Converted returns an object that may still change, in any version, as the view has it.
func (v *View) Converted(ctx context.Context, obj Object) (Object, error) {
	if v.Converter == nil {
		return v.Show(obj), nil
	}
	return v.Converter.Convert(ctx, obj)
}

// Stored returns an object of the view as it is stored.
func (v *View) Stored(ctx context.Context, shown Object) (Object, error) {
	if v.Converter == nil {
		return v.Store(shown), nil
	}
	return v.Converter.Store(ctx, shown)
}

// PrepareUpdate runs Prepare of the subresource, or else of the resource.
func (r *Resource) PrepareUpdate(next, cur Object, subresource string) {
	if sub := r.Subresource(subresource); sub != nil && sub.Prepare != nil {
		sub.Prepare(next, cur)
	} else if r.Prepare != nil {
		r.Prepare(next, cur, subresource)
	}
}

// ValidateUpdate returns the errors of Validate of the subresource, or else of the resource.
func (r *Resource) ValidateUpdate(next, cur Object, subresource string) field.ErrorList {
	if sub := r.Subresource(subresource); sub != nil && sub.Validate != nil {
		return sub.Validate(next, cur)
	}
	if r.Validate != nil {
		return r.Validate(next, cur, subresource)
	}
	return nil
}

// Can reports whether the resource supports the verb.
func (r *Resource) Can(verb string) bool {
	return r.Verbs == nil || slices.Contains(r.Verbs, verb)
}

// Stored reports whether objects are stored as this resource.
func (r *Resource) Stored() bool { return !r.Virtual && r.View == nil }

// Serves reports whether the resource has the subresource.
func (r *Resource) Serves(subresource string) bool {
	return r.Subresource(subresource) != nil
}

// Subresource returns a subresource by name; nil: not served.
func (r *Resource) Subresource(name string) *Subresource {
	for i := range r.Subresources {
		if r.Subresources[i].Name == name {
			return &r.Subresources[i]
		}
	}
	return nil
}

// VerbList returns Verbs or all verbs, in alphabetical order.
func (r *Resource) VerbList() []string {
	if r.Verbs != nil {
		return slices.Sorted(slices.Values(r.Verbs))
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// SingularName returns Singular or its default.
func (r *Resource) SingularName() string {
	if r.Singular == "" {
		return strings.ToLower(r.Kind)
	}
	return r.Singular
}

// GVK returns the kind with its group and version.
func (r *Resource) GVK() schema.GroupVersionKind { return r.GVR.GroupVersion().WithKind(r.Kind) }

// ListGVK returns the kind of lists.
func (r *Resource) ListGVK() schema.GroupVersionKind {
	return r.GVR.GroupVersion().WithKind(cmp.Or(r.ListKind, r.Kind+"List"))
}

// StoreName returns the store's name of the resource.
func (r *Resource) StoreName() string {
	switch {
	case r.StoredAs != "":
		return r.StoredAs
	case r.Qualified:
		return r.GVR.Resource + "." + r.GVR.Group
	}
	return r.GVR.Resource
}

// Key returns the store key of an object.
func (r *Resource) Key(namespace, name string) store.Key {
	return store.Key{Resource: r.StoreName(), Namespace: namespace, Name: name}
}

// NameErrors returns the errors of ValidName or its default.
func (r *Resource) NameErrors(name string, prefix bool) []string {
	if r.ValidName == nil {
		return validation.NameIsDNSSubdomain(name, prefix)
	}
	return r.ValidName(name, prefix)
}

// FieldOf returns the value of a field that field selectors support.
func (r *Resource) FieldOf(obj Object, name string) string {
	switch {
	case name == "metadata.name":
		return obj.GetName()
	case name == "metadata.namespace":
		return obj.GetNamespace()
	case r.Field != nil:
		return r.Field(obj, name)
	}
	return r.FieldsOf(obj)[name]
}

// FieldsOf returns the values of all fields that field selectors support.
func (r *Resource) FieldsOf(obj Object) fields.Set {
	set := fields.Set{}
	if r.Fields != nil {
		set = r.Fields(obj)
	}
	set["metadata.name"] = obj.GetName()
	set["metadata.namespace"] = obj.GetNamespace()
	return set
}
