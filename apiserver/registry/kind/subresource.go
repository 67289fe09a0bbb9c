package kind

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/kit/client"
)

// Subresource describes one subresource of a kind.
type Subresource struct {
	Name string
	// Verbs are the supported verbs, in alphabetical order; nil: get, patch and update.
	Verbs []string
	// Kind is the kind of request and response bodies; zero: the resource's kind.
	Kind schema.GroupVersionKind
	// New returns an empty request body; nil: an object of the resource.
	New func() Object
	// Part reports whether a read returns the stored object, or Scale's view of it, and an update changes the object.
	// Package virtual answers the other subresources except streams and proxies.
	Part bool
	// Stream reports whether requests last as long as their connections; they have no deadline.
	Stream bool
	// Enters reports whether the stream enters a container or the pod's network. This needs the verb create, even for the
	// GET of a WebSocket.
	Enters bool
	// Scale reads and changes the object's number of replicas; nil: the subresource is not a scale.
	Scale *Scale
	// Reset removes the fields that a write ignores, so that its manager does not own them; nil: all of the status.
	Reset fieldpath.Filter
	// Merge completes next, which the client sent, to the object that replaces cur; nil: next replaces cur.
	Merge func(next, cur Object, now metav1.Time) error
	// Prepare and Validate replace the resource's functions for an update of a Part;
	// nil: the resource's functions run, with the name of the subresource.
	Prepare  func(next, cur Object)
	Validate func(next, cur Object) field.ErrorList
	// Containers reports whether a write can add containers or change their images, so that Pod Security checks it.
	// Amounts reports whether a write can change requests and limits, so that LimitRanges and ResourceQuotas apply.
	Containers, Amounts bool
	// Update handles an update that does not change the object itself; nil: the registry updates the object. change gets
	// an empty object of Kind.
	Update func(ctx context.Context, in Registry, ref client.Ref, change client.Change) (Object, error)
}

// Registry contains the functions of the registry that Subresource.Update calls.
type Registry struct {
	client.Client
	// Admit runs admission for obj, which is posted to a subresource of old and not stored.
	Admit func(ctx context.Context, obj, old Object) error
	// Check returns a conflict if an object of the resource violates the preconditions.
	Check func(obj Object, p *metav1.Preconditions) error
	// Serves reports whether a resource is served.
	Serves func(resource schema.GroupVersionResource) bool
	// Token completes a request for a service account's token; nil: no tokens are issued.
	Token func(ctx context.Context, c client.Client, account *corev1.ServiceAccount,
		req *authenticationv1.TokenRequest) error
	// DryRun returns a context in which nothing is stored; IsDryRun recognizes it.
	DryRun   func(ctx context.Context) context.Context
	IsDryRun func(ctx context.Context) bool
	Now      func() metav1.Time
}

// Parts returns subresources of the object's own kind, such as its status. A write of the status ignores the spec, the
// deletion and the owners.
func Parts(names ...string) []Subresource {
	all := make([]Subresource, len(names))
	for i, name := range names {
		all[i] = Subresource{Name: name, Part: true}
		if name == "status" {
			all[i].Reset = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(
				fieldpath.MakePathOrDie("spec"),
				fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
				fieldpath.MakePathOrDie("metadata", "ownerReferences")))
		}
	}
	return all
}

// ScalePart returns the subresource scale.
func ScalePart(scale *Scale) Subresource {
	return Subresource{
		Name: "scale", Part: true, Scale: scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		New: func() Object { return new(autoscalingv1.Scale) },
	}
}

// Proxy returns the subresource that forwards requests to an object of the kind.
func Proxy(kind string) Subresource {
	return Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"},
		Kind: core(kind + "ProxyOptions"), Stream: true}
}

// Connection returns a subresource that opens a stream to a container. options is the kind of its options in v1.
func Connection(name, options string) Subresource {
	return Subresource{Name: name, Verbs: []string{"create", "get"}, Kind: core(options), Stream: true, Enters: true}
}

// Posted returns a subresource to which clients post objects of another kind. make returns an empty one.
func Posted(name string, kind schema.GroupVersionKind, make func() Object) Subresource {
	return Subresource{Name: name, Verbs: []string{"create"}, Kind: kind, New: make}
}

func core(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// Can reports whether the subresource supports the verb.
func (s *Subresource) Can(verb string) bool { return slices.Contains(s.VerbList(), verb) }

// VerbList returns Verbs or its default.
func (s *Subresource) VerbList() []string {
	if s.Verbs == nil {
		return []string{"get", "patch", "update"}
	}
	return s.Verbs
}

// KindOf returns the kind of request and response bodies for the subresource of r.
func (s *Subresource) KindOf(r *Resource) schema.GroupVersionKind {
	if s.Kind.Empty() {
		return r.GVK()
	}
	return s.Kind
}
