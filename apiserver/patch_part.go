package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/codec"
	"monopod/apiserver/codec/patch"
	"monopod/apiserver/registry"
)

// patchPart applies a merge patch to the top-level fields that it contains, without encoding the rest of the
// object: a patch of a status does not read the spec. false if that is not possible or fails: then the patch is
// applied to the whole object, which returns the error.
func patchPart(ctx context.Context, t target, typ types.PatchType, current, data []byte, cur registry.Object) (registry.Object, bool) {
	if typ != types.StrategicMergePatchType && typ != types.MergePatchType || t.another() || t.res.Schema != nil || len(current)+len(data) > codec.MaxBody {
		return nil, false
	}
	var wanted map[string]json.RawMessage
	if json.Unmarshal(data, &wanted) != nil {
		return nil, false
	}
	part, err := encodePart(cur, wanted)
	if err != nil {
		return nil, false
	}
	text, err := patch.Apply(typ, part, data, cur)
	if err != nil {
		return nil, false
	}
	rest := without(cur, wanted)
	if found, err := codec.DecodeJSON(ctx, text, rest); err != nil || len(found) > 0 || codec.CheckKind(rest.GetObjectKind().GroupVersionKind(), t.res.GVK()) != nil {
		return nil, false
	}
	return rest, true
}

// encodePart returns the JSON of the named fields of obj, with its kind and apiVersion. It fails if obj does not have
// one of them.
func encodePart(obj registry.Object, names map[string]json.RawMessage) ([]byte, error) {
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

// without returns a copy of obj without the named fields, which it has.
func without(obj registry.Object, names map[string]json.RawMessage) registry.Object {
	from := reflect.ValueOf(obj).Elem()
	shallow := reflect.New(from.Type())
	shallow.Elem().Set(from)
	for name := range names {
		fieldNamed(shallow.Elem(), name).SetZero()
	}
	return shallow.Interface().(registry.Object).DeepCopyObject().(registry.Object)
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
