package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/patch"
	"monopod/apiserver/registry"
)

// patch applies a patch to the object as it is.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) error {
	typ := types.PatchType(mediaType(r.Header.Get("Content-Type")))
	if typ == types.ApplyYAMLPatchType {
		return s.apply(w, r, t)
	}
	if _, err := patchOptions(r, typ); err != nil {
		return err
	}
	strict, err := fieldValidation(r)
	if err != nil {
		return err
	}
	data, err := patchBody(r)
	if err != nil {
		return err
	}
	if err := accountOf(r.Context()).admitPatch(r, typ, data, s.current(r, t)); err != nil {
		return err
	}
	audit.Of(r.Context()).Sent(data)
	doubled, err := patch.Doubled(typ, data)
	if err != nil {
		return err
	}
	return s.store(w, r, t, func(cur registry.Object) (registry.Object, error) {
		current, err := s.registry.JSON(r.Context(), cur)
		if err != nil {
			return nil, err
		}
		if len(doubled) == 0 {
			if obj, ok := patchPart(t, typ, current, data, cur); ok {
				return identified(obj, cur, t)
			}
		}
		text, err := patched(typ, current, data, cur)
		if err != nil {
			return nil, err
		}
		obj, found, err := decodePatched(r, t, text)
		if err == nil {
			err = strict.judge(w, append(found, doubled...))
		}
		if err != nil {
			return nil, errPatched(text, err)
		}
		return identified(obj, cur, t)
	})
}

// current is what a patch changes, as JSON; nil for nothing.
func (s *Server) current(r *http.Request, t target) []byte {
	e, err := s.registry.Entry(r.Context(), t.ref.Sub(""))
	if err != nil {
		return nil // as the change will hear
	}
	return e.JSON
}

// identified is a patched object that is still cur, as the path names it.
func identified(obj, cur registry.Object, t target) (registry.Object, error) {
	if obj.GetUID() == "" {
		obj.SetUID(cur.GetUID())
	}
	return obj, checkName(obj, t.ref, t.res.Namespaced)
}

// patched is the JSON that the patch makes of cur, whose JSON is current.
func patched(typ types.PatchType, current, data []byte, cur registry.Object) ([]byte, error) {
	text, err := patch.Apply(typ, current, data, cur)
	if err == nil && len(text) > maxBody {
		err = apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch makes an object of %d bytes, limit is %d", len(text), maxBody))
	}
	return text, err
}

// decodePatched reads what a patch made, and the fields of it that are unknown.
func decodePatched(r *http.Request, t target, text []byte) (registry.Object, []error, error) {
	obj, kind := t.shape()
	if err := accountOf(r.Context()).check(text, obj); err != nil {
		return nil, nil, err
	}
	found, err := decodeJSON(text, obj)
	if err != nil {
		return nil, nil, err
	}
	return obj, found, checkKind(obj.GetObjectKind().GroupVersionKind(), kind)
}

// errPatched is upstream's answer to a patch that makes no object: 422 with what
// it made.
func errPatched(text []byte, err error) error {
	why := err.Error()
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		why = api.Status().Message
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(text), why)})
}
