package apiserver

import (
	"context"
	"encoding/json"
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
	if typ != types.StrategicMergePatchType && typ != types.MergePatchType || t.another() || len(current)+len(data) > codec.MaxBody {
		return nil, false
	}
	var wanted, have map[string]json.RawMessage
	if json.Unmarshal(data, &wanted) != nil || json.Unmarshal(current, &have) != nil {
		return nil, false
	}
	rest, ok := without(cur, wanted)
	if !ok {
		return nil, false
	}
	for name := range have {
		if _, patched := wanted[name]; !patched && name != "kind" && name != "apiVersion" {
			delete(have, name)
		}
	}
	part, err := json.Marshal(have)
	if err != nil {
		return nil, false
	}
	text, err := patch.Apply(typ, part, data, cur)
	if err != nil {
		return nil, false
	}
	if found, err := codec.DecodeJSON(ctx, text, rest); err != nil || len(found) > 0 || codec.CheckKind(rest.GetObjectKind().GroupVersionKind(), t.res.GVK()) != nil {
		return nil, false
	}
	return rest, true
}

// without returns a copy of obj without the named fields; false if it does not have one of them.
func without(obj registry.Object, names map[string]json.RawMessage) (registry.Object, bool) {
	from := reflect.ValueOf(obj).Elem()
	shallow := reflect.New(from.Type())
	shallow.Elem().Set(from)
	for name := range names {
		field := fieldNamed(shallow.Elem(), name)
		if name == "" || !field.IsValid() { // kind and apiVersion are fields of TypeMeta
			return nil, false
		}
		field.SetZero()
	}
	out, ok := shallow.Interface().(registry.Object).DeepCopyObject().(registry.Object)
	return out, ok
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
