package match

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// Replace sets the request's object to data, the JSON of an object in a version, and reports whether the object
// changed. If strict is set, unknown fields are errors.
func (q *Request) Replace(res *kind.Resource, data []byte, strict bool) (bool, error) {
	is := q.R.Object
	was := encoded(is)
	f := q.Form(res)
	if err := bounded.Check(data); err != nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission returned an invalid object: %w", err))
	}
	next, err := q.decode(res, data, strict)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if got := next.GetObjectKind().GroupVersionKind(); got != f.Kind {
		return false, apierrors.NewInternalError(fmt.Errorf("admission changed the kind %v to %v", f.Kind, got))
	}
	if q.IsWholeObject() {
		if next.GetNamespace() != is.GetNamespace() {
			return false, apierrors.NewBadRequest(
				"the namespace of the provided object does not match the namespace sent on the request")
		}
		if q.R.Operation == admission.Create && next.GetName() == "" {
			next.SetName(is.GetName())
			next.SetGenerateName(is.GetGenerateName())
		}
		kind.KeepMetadata(next, is) // admission must not change it
		next.SetManagedFields(slices.Clone(is.GetManagedFields()))
		if res.View != nil {
			if next, err = res.View.ToStored(context.Background(), next); err != nil {
				return false, apierrors.NewInternalError(err)
			}
		}
	}
	if err := setObject(is, next); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if q.R.Resource.Default != nil && q.IsWholeObject() {
		q.R.Resource.Default(is)
	}
	q.Changed()
	return !bytes.Equal(was, encoded(is)), nil
}

// decode returns an object in a version.
func (q *Request) decode(res *kind.Resource, data []byte, strict bool) (kind.Object, error) {
	make := res.New
	if sub := res.Subresource(q.R.Subresource); sub != nil && sub.New != nil {
		make = sub.New
	}
	next := make()
	if o, ok := next.(interface {
		UnmarshalStrict(data []byte, admit func(bytes int) error) ([]error, error)
	}); ok {
		// The memory for the defaults is reserved with the request.
		_, err := o.UnmarshalStrict(data, func(int) error { return nil })
		return next, err
	}
	if err := bounded.CheckJSONQuantities(data, next); err != nil {
		return nil, err
	}
	if !strict {
		return next, kjson.UnmarshalCaseSensitivePreserveInts(data, next)
	}
	unknown, err := kjson.UnmarshalStrict(data, next)
	if err == nil && len(unknown) > 0 {
		err = runtime.NewStrictDecodingError(unknown)
	}
	return next, err
}

// setObject sets to to the content of from. The caller must not use from afterwards.
func setObject(to, from kind.Object) error {
	if o, ok := to.(kind.Untyped); ok {
		other, ok := from.(kind.Untyped)
		if !ok {
			return fmt.Errorf("cannot turn a %T into a %T", from, to)
		}
		all, err := other.Unstructured()
		if err != nil {
			return err
		}
		return o.FromUnstructured(all)
	}
	a, b := reflect.ValueOf(to), reflect.ValueOf(from)
	if a.Type() != b.Type() {
		return fmt.Errorf("cannot turn a %T into a %T", from, to)
	}
	a.Elem().Set(b.Elem())
	return nil
}

// encoded returns the JSON of an object, for comparisons.
func encoded(obj kind.Object) []byte {
	if isNil(obj) {
		return nil
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil // encoding the response returns the error
	}
	return data
}
