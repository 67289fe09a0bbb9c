package managed

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/registry/kind"
)

// Target identifies the kind and the subresource of a write.
type Target struct {
	Resource    *kind.Resource
	Subresource string
	// Views are the views of the stored resource, which managedFields may name.
	Views []*kind.Resource
}

// kind returns the kind of the written objects.
func (t Target) kind() schema.GroupVersionKind {
	if t.scales() {
		return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	return t.Resource.GVK()
}

// scales reports whether the written objects are Scales.
func (t Target) scales() bool {
	sub := t.Resource.Subresource(t.Subresource)
	return sub != nil && sub.Scale != nil
}

// untyped reports whether the written objects are Untyped, so that they are merged as maps.
func (t Target) untyped() bool { return t.Resource.Schema != nil && !t.scales() }

// empty returns an empty object.
func (t Target) empty() kind.Object {
	var obj kind.Object = &autoscalingv1.Scale{}
	switch {
	case t.untyped():
		obj = &unstructured.Unstructured{}
	case !t.scales():
		obj = newTyped(t.Resource)
	}
	obj.GetObjectKind().SetGroupVersionKind(t.kind())
	return obj
}

// newTyped returns an empty object in its upstream Go type.
func newTyped(res *kind.Resource) kind.Object {
	obj := res.New()
	if typed, err := kind.Typed(obj); err == nil { // cannot fail for an empty object
		return typed
	}
	return obj
}

// reset returns the fields that the write ignores, so that its manager does not own them (upstream: each strategy's
// GetResetFields).
func (t Target) reset() map[fieldpath.APIVersion]fieldpath.Filter {
	version := fieldpath.APIVersion(t.kind().GroupVersion().String())
	filter := func(f fieldpath.Filter) map[fieldpath.APIVersion]fieldpath.Filter {
		return map[fieldpath.APIVersion]fieldpath.Filter{version: f}
	}
	if sub := t.Resource.Subresource(t.Subresource); sub != nil && sub.Reset != nil {
		return filter(sub.Reset)
	}
	if t.scales() || t.Resource.Serves("status") {
		return filter(fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("status"))))
	}
	return nil
}

// converter converts objects of the target between the stored resource and its views, typed and untyped. Upstream's
// field manager uses it in place of a runtime.Scheme.
type converter struct{ target Target }

var (
	_ runtime.ObjectConvertor = converter{}
	_ runtime.ObjectDefaulter = converter{}
	_ runtime.ObjectCreater   = converter{}
)

// resource returns the resource of a kind.
func (f converter) resource(gvk schema.GroupVersionKind) *kind.Resource {
	for _, res := range append([]*kind.Resource{f.target.Resource}, f.target.Views...) {
		if res.GVK() == gvk {
			return res
		}
	}
	return nil
}

// New implements runtime.ObjectCreater.
func (f converter) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if gvk == f.target.kind() {
		return f.target.empty(), nil
	}
	res := f.resource(gvk)
	if res == nil {
		return nil, runtime.NewNotRegisteredErrForKind("managed", gvk)
	}
	var obj kind.Object = &unstructured.Unstructured{}
	if !f.target.untyped() {
		obj = newTyped(res)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

// Default implements runtime.ObjectDefaulter. It does nothing, because the registry sets the defaults.
func (f converter) Default(runtime.Object) {}

// ConvertToVersion implements runtime.ObjectConvertor.
func (f converter) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	typed, err := f.typed(in, from)
	if err != nil {
		return nil, err
	}
	if gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{from}); ok && gvk == from {
		return typed, nil
	}
	for _, res := range append([]*kind.Resource{f.target.Resource}, f.target.Views...) {
		if gvk, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{res.GVK()}); ok && gvk == res.GVK() {
			return f.convert(typed, f.resource(from), res)
		}
	}
	return nil, runtime.NewNotRegisteredErrForTarget("managed", nil, to)
}

// typed returns an object, which may be a map, as its Go type.
func (f converter) typed(in runtime.Object, gvk schema.GroupVersionKind) (kind.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		obj, ok := in.(kind.Object)
		if !ok {
			return nil, fmt.Errorf("%T is not an object", in)
		}
		return obj, nil
	}
	if f.target.untyped() {
		return u, nil
	}
	obj, err := f.New(gvk)
	if err != nil {
		return nil, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj.(kind.Object), err
}

// convert converts through the stored version.
func (f converter) convert(obj kind.Object, from, to *kind.Resource) (runtime.Object, error) {
	if f.target.untyped() {
		return f.convertUntyped(obj, from, to)
	}
	if from == nil {
		return nil, runtime.NewNotRegisteredErrForKind("managed", obj.GetObjectKind().GroupVersionKind())
	}
	var err error
	if from.View != nil {
		obj, err = from.View.ToStored(context.Background(), obj)
	}
	if to.View != nil && err == nil {
		obj, err = to.View.Convert(context.Background(), obj)
	}
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(to.GVK())
	return obj, nil
}

// convertUntyped converts an Untyped object.
func (f converter) convertUntyped(obj kind.Object, from, to *kind.Resource) (runtime.Object, error) {
	u := obj.DeepCopyObject().(*unstructured.Unstructured)
	convert := from != nil && to.View != nil && to.View.Converter != nil
	as := to
	if convert {
		as = from
	}
	u.SetGroupVersionKind(as.GVK())
	out := as.New().(kind.Untyped)
	if err := out.FromUnstructured(u); err != nil {
		return nil, err
	}
	if convert {
		converted, err := to.View.Convert(context.Background(), out)
		if err != nil {
			return nil, err
		}
		out = converted.(kind.Untyped)
	}
	return out.Unstructured()
}

// Convert implements runtime.ObjectConvertor; field managers do not call it.
func (f converter) Convert(in, _, _ any) error { return fmt.Errorf("%T cannot be converted", in) }

// ConvertFieldLabel implements runtime.ObjectConvertor; field managers do not call it.
func (f converter) ConvertFieldLabel(gvk schema.GroupVersionKind, _, _ string) (string, string, error) {
	return "", "", runtime.NewNotRegisteredErrForKind("managed", gvk)
}
