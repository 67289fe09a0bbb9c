// Package kind is what there is to say about the kinds of the API: a Resource is
// data, one value per kind, that the generic verbs of the registry, discovery and
// the encoders read.
package kind

import (
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// Object is a pointer to a typed Kubernetes object.
type Object = client.Object

// Resource is all there is to say about one kind: data, read by the generic
// verbs. Functions get objects of the type New makes.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Singular   string // empty: Kind in lower case
	Namespaced bool
	ShortNames []string
	Categories []string
	// Subresources are served below an object: its status, its log…
	Subresources []Subresource

	// Verbs are what can be done with it; nil: all there are.
	Verbs []string

	// Deprecated is what every request for it is warned of; empty: nothing.
	Deprecated string

	// Inert says why nothing in this process acts on the kind, as a clause that
	// follows a colon; empty: something does. Who creates one is warned, and the docs
	// list it.
	Inert string

	// Controller is the one, by its name in --controllers, without which the kind is
	// inert; empty: none in particular.
	Controller string

	// Virtual: nothing of it is stored, the server answers by itself (reviews,
	// componentstatuses). The registry refuses it.
	Virtual bool

	// View makes the resource another face of a stored one; nil: it is stored itself.
	View *View

	New func() Object

	// ValidName checks metadata.name, or the part before a generated suffix when
	// prefix is set; nil means a DNS-1123 subdomain.
	ValidName func(name string, prefix bool) []string

	// Default fills in what the client left out. It must be idempotent.
	Default func(obj Object)

	// Prepare runs after the client's change and before Default and Validate, with
	// generic metadata already right. It resets what this write may not touch: cur
	// is nil for a creation; for subresource "" it keeps cur's status, for "status"
	// everything but it; "delete" is the first phase of a deletion. Where a kind has
	// a generation it moves it when the spec changes.
	Prepare func(next, cur Object, subresource string)

	// Validate returns every mistake in next; cur is nil for a creation, else what
	// is stored, for rules about what may not change.
	Validate func(next, cur Object, subresource string) field.ErrorList

	// Grace decides the seconds a graceful deletion takes, 0 for at once; asked is
	// nil when the client did not say. A nil Grace: no graceful deletion.
	Grace func(cur Object, asked *int64) int64

	// Held says that a deleting object must stay although it has no finalizers
	// left in its metadata; nil: never.
	Held func(obj Object) bool

	// Orphans: a deletion that does not say what becomes of the dependents leaves
	// them behind, as upstream still does for its oldest kinds; OrphanWarning, if
	// there is one, tells the client so.
	Orphans       bool
	OrphanWarning string

	// ReturnDeleted: a deletion at once answers the object instead of a Status.
	ReturnDeleted bool

	// Fields are what field selectors may name beside metadata.name and
	// metadata.namespace.
	Fields func(obj Object) fields.Set

	// Warnings are what a client should know about an object that is stored all the
	// same: they become Warning headers. cur is nil for a creation; nil: none.
	Warnings func(next, cur Object) []string

	Columns []table.Column

	// Durability of a write; nil means store.Durable.
	Durability func(cur, next Object) store.Durability
}

// Scale maps an object to its scale subresource and back.
type Scale struct {
	Of  func(obj Object) *autoscalingv1.Scale
	Set func(obj Object, scale *autoscalingv1.Scale)
}

// View is how a resource shows objects that are stored under another one: events
// of events.k8s.io/v1 are those of v1, HorizontalPodAutoscalers of autoscaling/v1
// those of v2. Both functions make new objects and leave theirs alone.
type View struct {
	Of    schema.GroupVersionResource
	Show  func(stored Object) Object // what clients of the view get
	Store func(shown Object) Object  // what they send, as it is stored
}

// Can says whether the resource has the verb.
func (r *Resource) Can(verb string) bool {
	return r.Verbs == nil || slices.Contains(r.Verbs, verb)
}

// Stored says whether the store keeps objects under the resource's own name.
func (r *Resource) Stored() bool { return !r.Virtual && r.View == nil }

// Serves says whether the resource has the subresource.
func (r *Resource) Serves(subresource string) bool {
	return r.Subresource(subresource) != nil
}

// Subresource finds one by its name; nil: it is not served.
func (r *Resource) Subresource(name string) *Subresource {
	for i := range r.Subresources {
		if r.Subresources[i].Name == name {
			return &r.Subresources[i]
		}
	}
	return nil
}

// VerbList is Verbs, or all there are, in alphabetical order.
func (r *Resource) VerbList() []string {
	if r.Verbs != nil {
		return slices.Sorted(slices.Values(r.Verbs))
	}
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// SingularName is Singular or its default.
func (r *Resource) SingularName() string {
	if r.Singular == "" {
		return strings.ToLower(r.Kind)
	}
	return r.Singular
}

// GVK is the kind with its group and version.
func (r *Resource) GVK() schema.GroupVersionKind { return r.GVR.GroupVersion().WithKind(r.Kind) }

// Key is where the store keeps an object.
func (r *Resource) Key(namespace, name string) store.Key {
	return store.Key{Resource: r.GVR.Resource, Namespace: namespace, Name: name}
}

// NameErrors is what ValidName, or its default, finds wrong with a name.
func (r *Resource) NameErrors(name string, prefix bool) []string {
	if r.ValidName == nil {
		return validation.NameIsDNSSubdomain(name, prefix)
	}
	return r.ValidName(name, prefix)
}

// FieldsOf are all that a field selector may name of obj.
func (r *Resource) FieldsOf(obj Object) fields.Set {
	set := fields.Set{}
	if r.Fields != nil {
		set = r.Fields(obj)
	}
	set["metadata.name"] = obj.GetName()
	set["metadata.namespace"] = obj.GetNamespace()
	return set
}
