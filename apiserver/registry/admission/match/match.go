// Package match decides which webhooks and policies apply to a request: it matches rules, selectors and conditions in
// every version of the request's object.
package match

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// Config contains the dependencies of Requests. API and Versions are required.
type Config struct {
	API client.Client
	// Versions returns all served versions of a resource.
	Versions func(res *kind.Resource) []*kind.Resource
	// Authorizer answers the authorization checks of conditions; nil allows everything.
	Authorizer auth.Authorizer
}

// Request is one admission request in all versions of its object.
type Request struct {
	R         *admission.Request
	Mutating  bool           // the object may still change
	Requested *kind.Resource // the version that the client uses
	Namespace string         // for a Namespace its own name

	cfg       *Config
	namespace *corev1.Namespace // nil until NamespaceObject reads it
	forms     map[*kind.Resource]*Form
	others    []*kind.Resource // the other versions, valid if listed
	listed    bool
}

// Form is the request's object in one version.
type Form struct {
	Kind        schema.GroupVersionKind
	Object, Old runtime.Object // nil: none
	Err         error          // the conversion to the version failed
}

// New returns the Request of r.
func New(cfg *Config, r *admission.Request, mutating bool) *Request {
	q := &Request{cfg: cfg, R: r, Mutating: mutating, Requested: r.Requested, Namespace: r.Namespace,
		forms: map[*kind.Resource]*Form{}}
	if q.Requested == nil {
		q.Requested = r.Resource
	}
	if r.Resource.GVR == client.Namespaces {
		q.Namespace = r.Name
	}
	return q
}

// IsWholeObject reports whether the request's object is of the resource's own kind. Only such objects have versions.
func (q *Request) IsWholeObject() bool {
	sub := q.R.Resource.Subresource(q.R.Subresource)
	return q.R.Operation != admission.Connect && (q.R.Subresource == "" || sub != nil && sub.Kind.Empty())
}

// versions returns the versions besides the requested one.
func (q *Request) versions() []*kind.Resource {
	if !q.listed && q.IsWholeObject() {
		for _, res := range q.cfg.Versions(q.R.Resource) {
			if res.GVR != q.Requested.GVR {
				q.others = append(q.others, res)
			}
		}
	}
	q.listed = true
	return q.others
}

// Form returns the object in a version.
func (q *Request) Form(res *kind.Resource) *Form {
	if f := q.forms[res]; f != nil {
		return f
	}
	f := &Form{Kind: res.GVK()}
	q.forms[res] = f
	sub := q.R.Resource.Subresource(q.R.Subresource)
	switch {
	case q.R.Operation == admission.Connect:
		if sub != nil {
			f.Kind = sub.KindOf(q.R.Resource)
		}
		f.Object = WithKind(q.R.Options, f.Kind)
		return f
	case !q.IsWholeObject():
		f.Kind = sub.KindOf(q.R.Resource)
	}
	var errs [2]error
	f.Object, errs[0] = q.convert(res, q.object(), f.Kind)
	f.Old, errs[1] = q.convert(res, q.R.Old, f.Kind)
	f.Err = errors.Join(errs[:]...)
	if q.R.Operation == admission.Create && !q.IsWholeObject() {
		f.Old = nil // the parent object, see admission.Request
	}
	return f
}

// object returns the request's object. Mutating admission sees a new object without the fields that the server sets.
func (q *Request) object() kind.Object {
	o := q.R.Object
	if q.Mutating && q.R.Operation == admission.Create && q.IsWholeObject() && !isNil(o) {
		o = o.DeepCopyObject().(kind.Object)
		if q.R.Generated {
			o.SetName("")
		}
		o.SetUID("")
		o.SetCreationTimestamp(metav1.Time{})
	}
	return o
}

// isNil reports whether o is nil or a nil pointer in an interface.
func isNil(o kind.Object) bool { return o == nil || reflect.ValueOf(o).IsNil() }

// convert returns an object in a version; nil for none.
func (q *Request) convert(res *kind.Resource, obj kind.Object, as schema.GroupVersionKind) (runtime.Object, error) {
	if isNil(obj) {
		return nil, nil
	}
	if res.View != nil && q.IsWholeObject() {
		var err error
		if obj, err = res.View.Convert(context.Background(), obj); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return WithKind(obj, as), nil
}

// WithKind returns obj with its kind; nil for none.
func WithKind(obj runtime.Object, as schema.GroupVersionKind) runtime.Object {
	if obj == nil || obj.GetObjectKind().GroupVersionKind() == as {
		return obj
	}
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(as)
	return obj
}

// Changed drops the forms of the object. Callers must call it after each change of the object.
func (q *Request) Changed() { clear(q.forms) }

// internalUser is the user that webhooks and policies see in requests of this process.
var internalUser = auth.User{Name: "system:kube-controller-manager", Groups: []string{auth.Authenticated}}

// User returns the user that sent the request.
func (q *Request) User(ctx context.Context) auth.User {
	if u, ok := auth.Known(ctx); ok {
		return u
	}
	return internalUser
}

// Name returns the object's name; empty for a generated name in mutating admission.
func (q *Request) Name() string {
	if q.Mutating && q.R.Generated {
		return ""
	}
	return q.R.Name
}

// Options returns the options of the request.
func (q *Request) Options() runtime.Object {
	var dry []string
	if q.R.DryRun {
		dry = []string{metav1.DryRunAll}
	}
	group := metav1.GroupVersion{Group: metav1.GroupName, Version: "v1"}.String()
	switch q.R.Operation {
	case admission.Create:
		return &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{Kind: "CreateOptions", APIVersion: group}, DryRun: dry}
	case admission.Update:
		return &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{Kind: "UpdateOptions", APIVersion: group}, DryRun: dry}
	case admission.Delete:
		if o, ok := q.R.Options.(*metav1.DeleteOptions); ok {
			out := o.DeepCopy()
			out.Kind, out.APIVersion = "DeleteOptions", group
			return out
		}
	}
	return nil
}

// labels returns the labels of the request's namespace.
func (q *Request) labels(ctx context.Context) (labels.Set, error) {
	if q.R.Resource.GVR == client.Namespaces && q.R.Subresource == "" && q.R.Object != nil {
		return q.R.Object.GetLabels(), nil
	}
	ns, err := q.NamespaceObject(ctx)
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}

// NamespaceObject returns the request's namespace.
func (q *Request) NamespaceObject(ctx context.Context) (*corev1.Namespace, error) {
	if q.namespace != nil {
		return q.namespace, nil
	}
	ns, err := client.Get[*corev1.Namespace](ctx, q.cfg.API, "", q.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil, err
	case err != nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to read namespace %s: %w", q.Namespace, err))
	}
	q.namespace = ns
	return ns, nil
}
