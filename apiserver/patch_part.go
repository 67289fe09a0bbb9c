package apiserver

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/codec"
	"monopod/apiserver/patch"
	"monopod/apiserver/registry"
)

// patchPart applies a merge patch to the top-level fields that it contains, without encoding the rest of the object: a
// patch of a status does not encode the spec. It returns false if that is impossible or fails; the caller then patches
// the whole object, which returns the error.
func patchPart(ctx context.Context, t target, typ types.PatchType, current, data []byte,
	cur registry.Object) (registry.Object, bool) {
	if typ != types.StrategicMergePatchType && typ != types.MergePatchType || t.otherKind() || t.res.Schema != nil ||
		len(current)+len(data) > codec.MaxBody {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return nil, false
	}
	part, err := patch.Fields(cur, fields)
	if err != nil {
		return nil, false
	}
	text, err := patch.Apply(typ, part, data, cur)
	if err != nil {
		return nil, false
	}
	obj := patch.Without(cur, fields).(registry.Object)
	if found, err := codec.DecodeJSON(ctx, text, obj); err != nil || len(found) > 0 ||
		codec.CheckKind(obj.GetObjectKind().GroupVersionKind(), t.res.GVK()) != nil {
		return nil, false
	}
	return obj, true
}
