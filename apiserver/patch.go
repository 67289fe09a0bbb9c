package apiserver

import (
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/audit"
	"monopod/apiserver/codec"
	"monopod/apiserver/patch"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/request"
)

// patch applies a patch to the current object.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) error {
	typ := types.PatchType(codec.MediaType(r.Header.Get("Content-Type")))
	if typ == types.ApplyYAMLPatchType || typ == types.ApplyCBORPatchType {
		return s.apply(w, r, t)
	}
	if !slices.Contains(patch.Supported, string(typ)) {
		return patch.ErrUnsupported(typ, patch.Served()...)
	}
	if typ == types.StrategicMergePatchType && t.res.Schema != nil && !t.otherKind() {
		return patch.ErrUnsupported(typ, patch.Untyped()...)
	}
	if _, err := request.PatchOptions(r, typ); err != nil {
		return err
	}
	strict, err := codec.FieldValidation(r)
	if err != nil {
		return err
	}
	data, err := codec.PatchBody(r)
	if err != nil {
		return err
	}
	if err := codec.AccountOf(r.Context()).AdmitPatch(r, typ, data, s.current(r, t)); err != nil {
		return err
	}
	audit.Of(r.Context()).Sent(data)
	duplicates, err := patch.Duplicates(typ, data)
	if err != nil {
		return err
	}
	return s.store(w, r, t, func(cur registry.Object) (registry.Object, error) {
		current, err := s.registry.JSON(r.Context(), cur)
		if err != nil {
			return nil, err
		}
		if len(duplicates) == 0 {
			if obj, ok := patchPart(r.Context(), t, typ, current, data, cur); ok {
				return withIdentity(obj, cur, t)
			}
		}
		text, err := applyPatch(typ, current, data, cur)
		if err != nil {
			return nil, err
		}
		obj, found, err := codec.DecodePatched(r, text, t.body())
		if err == nil {
			err = strict.Judge(w, append(found, duplicates...))
		}
		if err != nil {
			return nil, codec.ErrPatched(text, err)
		}
		return withIdentity(obj, cur, t)
	})
}

// current returns the stored object as JSON, or nil if it does not exist.
func (s *Server) current(r *http.Request, t target) []byte {
	e, err := s.registry.Entry(r.Context(), t.ref.Sub(""))
	if err != nil {
		return nil // the update reports the error
	}
	return e.JSON()
}

// withIdentity sets the UID, name and namespace of a patched object from cur and the path.
func withIdentity(obj, cur registry.Object, t target) (registry.Object, error) {
	if obj.GetUID() == "" {
		obj.SetUID(cur.GetUID())
	}
	return obj, codec.CheckName(obj, t.ref, t.res.Namespaced)
}

// applyPatch applies data, a patch, to current, the JSON of cur.
func applyPatch(typ types.PatchType, current, data []byte, cur registry.Object) ([]byte, error) {
	typed, err := kind.Typed(cur)
	if err != nil {
		return nil, err
	}
	text, err := patch.Apply(typ, current, data, typed)
	if err == nil && len(text) > codec.MaxBody {
		err = apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the patched object has %d bytes, limit is %d", len(text), codec.MaxBody))
	}
	return text, err
}
