package kind

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/client"
)

// Subresource is one that is served below an object.
type Subresource struct {
	Name string
	// Verbs are what can be done with it, in alphabetical order; nil: get, patch and
	// update.
	Verbs []string
	// Kind is what it takes and answers; zero: the object's own.
	Kind schema.GroupVersionKind
	// New makes what the body of a write is decoded into; nil: an object of the
	// resource itself.
	New func() Object
	// Part: a read shows the stored object, or Scale's view of it, and an update
	// changes it. The others are answered by package virtual, or are streams and
	// proxies.
	Part bool
	// Stream: a request lasts as long as what it is connected to; it has no deadline.
	Stream bool
	// Scale shows and changes the object's number of replicas; nil: the subresource is
	// not one of a Scale.
	Scale *Scale
	// Reset leaves out the fields that a write does not reach, so that nobody owns them by it; nil: all but the
	// object's status are reached.
	Reset fieldpath.Filter
	// Merge makes of next, which is what the client wants, what is stored in the place of
	// cur; nil: next itself.
	Merge func(next, cur Object, now metav1.Time) error
	// Update answers an update that does not change the object itself; change gets an
	// empty object of Kind. nil: it does.
	Update func(ctx context.Context, in Registry, ref client.Ref, change client.Change) (Object, error)
}

// Registry is what Subresource.Update works with.
type Registry struct {
	client.Client
	// Admit asks admission about obj, which is posted below old and not stored.
	Admit func(ctx context.Context, obj, old Object) error
	// Check holds preconditions against an object of the resource.
	Check func(obj Object, p *metav1.Preconditions) error
	// Serves says whether a resource is served.
	Serves func(resource schema.GroupVersionResource) bool
	// Token fills in a request for a token of an account; nil: no tokens are issued.
	Token func(ctx context.Context, c client.Client, account *corev1.ServiceAccount, req *authenticationv1.TokenRequest) error
	// DryRun returns a context under which nothing is stored; IsDryRun tells one.
	DryRun   func(ctx context.Context) context.Context
	IsDryRun func(ctx context.Context) bool
	Now      func() metav1.Time
}

// Parts are subresources of the object's own kind, such as its status. A write of the status reaches neither the
// spec nor what decides over the life of the object.
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

// ScalePart is the subresource scale.
func ScalePart(scale *Scale) Subresource {
	return Subresource{
		Name: "scale", Part: true, Scale: scale, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		New: func() Object { return new(autoscalingv1.Scale) },
	}
}

// Proxy is the subresource that passes requests on to an object of the kind.
func Proxy(kind string) Subresource {
	return Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: core(kind + "ProxyOptions"), Stream: true}
}

// Connection is a subresource that streams, with options of the kind in v1.
func Connection(name, options string) Subresource {
	return Subresource{Name: name, Verbs: []string{"create", "get"}, Kind: core(options), Stream: true}
}

// Posted is a subresource that objects of another kind are posted to; obj is made
// by make.
func Posted(name string, kind schema.GroupVersionKind, make func() Object) Subresource {
	return Subresource{Name: name, Verbs: []string{"create"}, Kind: kind, New: make}
}

func core(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// Can says whether the subresource has the verb.
func (s *Subresource) Can(verb string) bool { return slices.Contains(s.VerbList(), verb) }

// VerbList is Verbs or its default.
func (s *Subresource) VerbList() []string {
	if s.Verbs == nil {
		return []string{"get", "patch", "update"}
	}
	return s.Verbs
}

// KindOf is the kind that the subresource of an object of the resource takes and
// answers.
func (s *Subresource) KindOf(r *Resource) schema.GroupVersionKind {
	if s.Kind.Empty() {
		return r.GVK()
	}
	return s.Kind
}
