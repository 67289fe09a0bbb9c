package kind

import (
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
}

// Parts are subresources of the object's own kind, such as its status.
func Parts(names ...string) []Subresource {
	all := make([]Subresource, len(names))
	for i, name := range names {
		all[i] = Subresource{Name: name, Part: true}
	}
	return all
}

// ScalePart is the subresource scale, for kinds with a Scale.
func ScalePart() Subresource {
	return Subresource{
		Name: "scale", Part: true, Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"),
		New: func() Object { return new(autoscalingv1.Scale) },
	}
}

// Proxy is the subresource that passes requests on to an object of the kind.
func Proxy(kind string) Subresource {
	return Subresource{Name: "proxy", Verbs: []string{"create", "delete", "get", "patch", "update"}, Kind: core(kind + "ProxyOptions")}
}

// Connection is a subresource that streams, with options of the kind in v1.
func Connection(name, options string) Subresource {
	return Subresource{Name: name, Verbs: []string{"create", "get"}, Kind: core(options)}
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
