package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fields returns the JSON of the named fields of obj, with its kind and apiVersion. It returns an error if obj lacks
// one of them.
func Fields(obj runtime.Object, names map[string]json.RawMessage) ([]byte, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	part := map[string]any{"kind": gvk.Kind, "apiVersion": gvk.GroupVersion().String()}
	from := reflect.ValueOf(obj).Elem()
	for name := range names {
		field := fieldNamed(from, name)
		if name == "" || !field.IsValid() { // kind and apiVersion are fields of TypeMeta
			return nil, fmt.Errorf("%T has no field %q", obj, name)
		}
		if !field.IsZero() {
			part[name] = field.Addr().Interface()
		}
	}
	return json.Marshal(part)
}

// Without returns a copy of obj without the named fields. obj must have them.
func Without(obj runtime.Object, names map[string]json.RawMessage) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	shallow := reflect.New(from.Type())
	shallow.Elem().Set(from)
	for name := range names {
		fieldNamed(shallow.Elem(), name).SetZero()
	}
	return shallow.Interface().(runtime.Object).DeepCopyObject()
}

// fieldNamed returns a struct's field by its JSON name.
func fieldNamed(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}
