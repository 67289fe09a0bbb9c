package apiserver

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/codec"
	"monopod/apiserver/patch"
	"monopod/apiserver/registry"
)

// patchPart applies a merge patch to the top-level fields that it contains, without encoding the rest of the
// object: a patch of a status does not read the spec. false if that is not possible or fails: then the patch is
// applied to the whole object, which returns the error.
func patchPart(ctx context.Context, t target, typ types.PatchType, current, data []byte,
	cur registry.Object) (registry.Object, bool) {
	if typ != types.StrategicMergePatchType && typ != types.MergePatchType || t.another() || t.res.Schema != nil ||
		len(current)+len(data) > codec.MaxBody {
		return nil, false
	}
	var wanted map[string]json.RawMessage
	if json.Unmarshal(data, &wanted) != nil {
		return nil, false
	}
	part, err := patch.Fields(cur, wanted)
	if err != nil {
		return nil, false
	}
	text, err := patch.Apply(typ, part, data, cur)
	if err != nil {
		return nil, false
	}
	rest := patch.Without(cur, wanted).(registry.Object)
	if found, err := codec.DecodeJSON(ctx, text, rest); err != nil || len(found) > 0 ||
		codec.CheckKind(rest.GetObjectKind().GroupVersionKind(), t.res.GVK()) != nil {
		return nil, false
	}
	return rest, true
}
