// Package kind describes the kinds of the API as data. The generic verbs of the registry, discovery and the encoders
// read one Resource for each kind.
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

// Resource describes one kind. Its functions get objects of the type that New returns.
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

	// Ending is the error of a creation while the resource is terminating; empty: it is not. Discovery then shows Verbs,
	// but all verbs work.
	Ending string

	// Qualified reports whether the store's name of the resource includes its group, because another group may have a
	// resource of the same name.
	Qualified bool

	// StoredAs is the precomputed StoreName of a Qualified resource; empty: StoreName computes it.
	StoredAs string

	// Schema describes the objects of a kind without a Go type; nil: package definitions does. Such objects are Untyped
	// and have no protobuf encoding.
	Schema Schema

	// Deprecated is a warning for all responses; empty: none.
	Deprecated string

	// Controller is the name of the controller that acts on the kind; empty: no single controller. Without the controller
	// a creation returns a warning that the object is only stored.
	Controller string

	// Off is the reason why nothing acts on the kind without its Controller, as a clause after a colon; empty: --controllers
	// disables the controller.
	Off string

	// Virtual reports whether the server computes the objects and stores none (reviews, componentstatuses). The registry
	// rejects the kind.
	Virtual bool

	// View makes the resource another version of a stored one; nil: it is stored itself.
	View *View

	New func() Object

	// ValidName returns the errors of metadata.name, or, if prefix is set, of generateName; nil: a DNS-1123 subdomain.
	ValidName func(name string, prefix bool) []string

	// Default sets the defaults. It must be idempotent.
	Default func(obj Object)

	// Stamp sets the times of changes, unless the client does; nil: the kind has none. It runs after Default. cur is nil
	// for a creation.
	Stamp func(next, cur Object, now metav1.Time)

	// Prepare runs after the client's change and before Default and Validate, with correct generic metadata. It restores
	// the fields that the write must not change: subresource "" keeps cur's status, "status" keeps everything else,
	// "delete" is the beginning of a deletion. cur is nil for a creation. Prepare increments the generation, if the kind
	// has one, when the spec changes.
	Prepare func(next, cur Object, subresource string)

	// Validate returns all errors of next; cur is the stored object, nil for a creation.
	Validate func(next, cur Object, subresource string) field.ErrorList

	// Grace returns the grace period of a deletion in seconds, 0 for none. requested is the grace period of the request,
	// or nil. A nil Grace means no graceful deletion.
	Grace func(cur Object, requested *int64) int64

	// BlocksDeletion reports whether an object that is being deleted must remain although it has no metadata.finalizers;
	// nil: never.
	BlocksDeletion func(obj Object) bool

	// Orphans reports whether a deletion without a propagation policy orphans the dependents, as upstream does for its
	// oldest kinds. Such a deletion returns the warning OrphanWarning; empty: none.
	Orphans       bool
	OrphanWarning string

	// Childless reports whether the garbage collector ignores the kind. A deletion then removes the collector's finalizers
	// and adds none.
	Childless bool

	// ReturnDeleted reports whether an immediate deletion returns the object instead of a Status.
	ReturnDeleted bool

	// Fields returns the fields that field selectors support, besides metadata.name and metadata.namespace.
	Fields func(obj Object) fields.Set
	// Field returns one of Fields without the others; nil: Fields is used.
	Field func(obj Object, name string) string

	// Warnings returns the warnings about a valid object; nil: none. cur is nil for a creation.
	Warnings func(next, cur Object) []string

	Columns []table.Column

	// Order is the order of the rows of a Table; nil: by namespace and name, as lists.
	Order func(a, b Object) int

	// Durability returns the durability of a write; nil: store.Durable.
	Durability func(cur, next Object) store.Durability
}

// Scale maps an object to its subresource scale and back.
type Scale struct {
	Of  func(obj Object) *autoscalingv1.Scale
	Set func(obj Object, scale *autoscalingv1.Scale)
}

// View makes the resource another version of a stored resource; nil: it is stored itself.
type View struct {
	Of    schema.GroupVersionResource
	Base  *Resource                  // the stored resource, if it is not served; nil: the one that serves Of
	Show  func(stored Object) Object // stored object to the view
	Store func(shown Object) Object  // view to the stored object
	// Converter converts in place of Show and Store, which then convert the metadata only; nil: they convert.
	Converter Converter
}

// Converter converts in place of Show and Store, which then convert only the metadata; nil: Show and Store convert.
type Converter interface {
	// Show converts stored objects to the view, several at once.
	Show(ctx context.Context, stored []Object) ([]Object, error)
	// Convert converts an object that may still change to the view.
	Convert(ctx context.Context, obj Object) (Object, error)
	// Store converts an object of the view to the stored version.
	Store(ctx context.Context, shown Object) (Object, error)
}

// FromStored converts a stored object to the view.
func (v *View) FromStored(ctx context.Context, stored Object) (Object, error) {
	if v.Converter == nil {
		return v.Show(stored), nil
	}
	out, err := v.Converter.Show(ctx, []Object{stored})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// Convert converts an object that may still change, in any version, to the view.
func (v *View) Convert(ctx context.Context, obj Object) (Object, error) {
	if v.Converter == nil {
		return v.Show(obj), nil
	}
	return v.Converter.Convert(ctx, obj)
}

// ToStored converts an object of the view to the stored object.
func (v *View) ToStored(ctx context.Context, shown Object) (Object, error) {
	if v.Converter == nil {
		return v.Store(shown), nil
	}
	return v.Converter.Store(ctx, shown)
}

// PrepareUpdate runs Prepare of the subresource, or by default of the resource.
func (r *Resource) PrepareUpdate(next, cur Object, subresource string) {
	if sub := r.Subresource(subresource); sub != nil && sub.Prepare != nil {
		sub.Prepare(next, cur)
	} else if r.Prepare != nil {
		r.Prepare(next, cur, subresource)
	}
}

// ValidateUpdate runs Validate of the subresource, or by default of the resource.
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
