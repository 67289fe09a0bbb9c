package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// visit is one request on its way past the webhooks.
type visit struct {
	*Hooks
	r         *admission.Request
	mutating  bool
	requested *kind.Resource // the version that the client uses
	namespace string         // of a Namespace its own name
	labels    labels.Set     // of the namespace, once read
	forms     map[*kind.Resource]*form
	others    []*kind.Resource // the other versions, once listed
	listed    bool
}

// form is the request's object in one version.
type form struct {
	kind        schema.GroupVersionKind
	object, old runtime.Object // nil: none
}

func (h *Hooks) visit(r *admission.Request, mutating bool) *visit {
	v := &visit{Hooks: h, r: r, mutating: mutating, requested: r.Requested, namespace: r.Namespace, forms: map[*kind.Resource]*form{}}
	if v.requested == nil {
		v.requested = r.Resource
	}
	if r.Resource.GVR == client.Namespaces {
		v.namespace = r.Name
	}
	return v
}

// whole reports whether the request's object is of the resource's own kind, which has other versions.
func (v *visit) whole() bool {
	sub := v.r.Resource.Subresource(v.r.Subresource)
	return v.r.Operation != admission.Connect && (v.r.Subresource == "" || sub != nil && sub.Kind.Empty())
}

// versions returns the versions besides the requested one.
func (v *visit) versions() []*kind.Resource {
	if !v.listed && v.whole() {
		for _, res := range v.cfg.Versions(v.r.Resource) {
			if res.GVR != v.requested.GVR {
				v.others = append(v.others, res)
			}
		}
	}
	v.listed = true
	return v.others
}

// in returns the object in a version.
func (v *visit) in(res *kind.Resource) *form {
	if f := v.forms[res]; f != nil {
		return f
	}
	f := &form{kind: res.GVK()}
	v.forms[res] = f
	sub := v.r.Resource.Subresource(v.r.Subresource)
	switch {
	case v.r.Operation == admission.Connect:
		if sub != nil {
			f.kind = sub.KindOf(v.r.Resource)
		}
		f.object = typed(v.r.Options, f.kind)
		return f
	case !v.whole():
		f.kind = sub.KindOf(v.r.Resource)
	}
	f.object, f.old = v.shown(res, v.r.Object, f.kind), v.shown(res, v.r.Old, f.kind)
	if v.r.Operation == admission.Create && !v.whole() {
		f.old = nil // the object above
	}
	return f
}

// shown returns an object in a version; nil for none.
func (v *visit) shown(res *kind.Resource, obj kind.Object, as schema.GroupVersionKind) runtime.Object {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return nil
	}
	if res.View != nil && v.whole() {
		obj = res.View.Show(obj)
	}
	return typed(obj, as)
}

// typed returns obj with its kind; nil for none.
func typed(obj runtime.Object, as schema.GroupVersionKind) runtime.Object {
	if obj == nil || obj.GetObjectKind().GroupVersionKind() == as {
		return obj
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(as)
	return obj
}

// changed forgets the forms of an object that has changed.
func (v *visit) changed() { clear(v.forms) }

// raw returns an object as JSON. For a webhook that may still change a new object, it is without what the server
// adds later.
func (v *visit) raw(obj runtime.Object) (runtime.RawExtension, error) {
	if obj == nil {
		return runtime.RawExtension{}, nil
	}
	if o, ok := obj.(kind.Object); ok && v.mutating && v.r.Operation == admission.Create && v.whole() {
		o = o.DeepCopyObject().(kind.Object)
		blank(o)
		obj = o
	}
	data, err := json.Marshal(obj)
	return runtime.RawExtension{Raw: data}, err
}

// labelsOf returns the labels of the request's namespace.
func (v *visit) labelsOf(ctx context.Context) (labels.Set, error) {
	if v.labels != nil {
		return v.labels, nil
	}
	v.labels = labels.Set{}
	if v.r.Resource.GVR == client.Namespaces && v.r.Subresource == "" && v.r.Object != nil {
		v.labels = v.r.Object.GetLabels()
		return v.labels, nil
	}
	ns, err := client.Get[*corev1.Namespace](ctx, v.cfg.API, "", v.namespace)
	switch {
	case apierrors.IsNotFound(err):
		v.labels = nil
		return nil, err
	case err != nil:
		v.labels = nil
		return nil, apierrors.NewInternalError(fmt.Errorf("read the namespace %s: %w", v.namespace, err))
	}
	v.labels = ns.Labels
	return v.labels, nil
}
