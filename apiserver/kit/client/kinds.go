package client

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a stored kind, for clients that handle objects of any kind.
type Kind struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Scale      bool // it has the subresource scale
	Unwatched  bool // it supports list and delete, but not watch
}

// Kinds returns the served kinds, and a channel that is closed when they change, because custom kinds come and go. The
// channel is nil if they never change.
type Kinds func() (kinds []Kind, changed <-chan struct{})

// Watched returns the kinds without those that cannot be watched.
func (k Kinds) Watched() Kinds {
	return func() ([]Kind, <-chan struct{}) {
		kinds, changed := k()
		return slices.DeleteFunc(slices.Clone(kinds), func(kind Kind) bool { return kind.Unwatched }), changed
	}
}

// Now returns the served kinds.
func (k Kinds) Now() []Kind {
	kinds, _ := k()
	return kinds
}

// Named returns the served kind that an object's apiVersion and kind name, or a meta.NoKindMatchError.
func (k Kinds) Named(apiVersion, kind string) (Kind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return Kind{}, err
	}
	gk := schema.GroupKind{Group: gv.Group, Kind: kind}
	for _, served := range k.Now() {
		if served.GroupKind() == gk {
			return served, nil
		}
	}
	return Kind{}, &meta.NoKindMatchError{GroupKind: gk}
}

// GroupKind returns the group and kind, which all versions share.
func (k Kind) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: k.Resource.Group, Kind: k.Kind}
}

// apiTypes is the import path of the types of Kubernetes' API: k8s.io/api/GROUP/VERSION. Those of custom kinds'
// definitions are below definitionTypes, those of aggregated API servers below aggregatorTypes.
const (
	apiTypes        = "k8s.io/api/"
	definitionTypes = "k8s.io/apiextensions-apiserver/pkg/apis/"
	aggregatorTypes = "k8s.io/kube-aggregator/pkg/apis/"
)

// ResourceOf returns the resource of an object, whether or not it is served. It derives the resource from the Go type
// if that belongs to Kubernetes' API or has a method Resource, otherwise from the TypeMeta. It returns false if neither
// is sufficient.
func ResourceOf(obj Object) (schema.GroupVersionResource, bool) {
	t := reflect.TypeOf(obj)
	gvr, ok := resourceOf(t)
	if ok {
		return gvr, true
	}
	if t == nil || reflect.ValueOf(obj).IsZero() {
		return gvr, false
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	gvr, _ = meta.UnsafeGuessKindToResource(gvk)
	return gvr, gvk.Kind != ""
}

// resourceOf derives the resource from the type's name and package, as upstream's code generators do.
func resourceOf(t reflect.Type) (schema.GroupVersionResource, bool) {
	if t == nil || t.Kind() != reflect.Pointer {
		return schema.GroupVersionResource{}, false
	}
	if of, ok := reflect.Zero(t).Interface().(interface {
		Resource() schema.GroupVersionResource
	}); ok {
		return of.Resource(), true
	}
	var dir string
	var ok bool
	for _, types := range []string{apiTypes, definitionTypes, aggregatorTypes} {
		if dir, ok = strings.CutPrefix(t.Elem().PkgPath(), types); ok {
			break
		}
	}
	group, version, ok2 := strings.Cut(dir, "/")
	if !ok || !ok2 || strings.Contains(version, "/") {
		return schema.GroupVersionResource{}, false
	}
	plural, _ := meta.UnsafeGuessKindToResource(
		schema.GroupVersionKind{Group: groupOf(group), Version: version, Kind: t.Elem().Name()})
	return plural, true
}

// groupOf returns the API group of the types in a folder of that name: most groups have a domain that the
// folder's name lacks.
func groupOf(folder string) string {
	switch folder {
	case "core":
		return ""
	case "apps", "autoscaling", "batch", "extensions", "policy":
		return folder
	case "rbac":
		return "rbac.authorization.k8s.io"
	case "flowcontrol":
		return "flowcontrol.apiserver.k8s.io"
	case "apiserverinternal":
		return "internal.apiserver.k8s.io"
	}
	return folder + ".k8s.io"
}
