package apiserver

import (
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/patch"
	"monopod/apiserver/registry"
)

// update replaces an object, or what a subresource shows of it.
func (s *Server) update(w http.ResponseWriter, r *http.Request, t target) error {
	data, err := body(r)
	if err != nil {
		return err
	}
	obj, err := decodeFor(w, r, t, data)
	if err != nil {
		return err
	}
	return s.store(w, r, t, func(registry.Object) (registry.Object, error) {
		return obj.DeepCopyObject().(registry.Object), nil
	})
}

// decodeFor reads the body of a write to the object or one of its subresources.
func decodeFor(w http.ResponseWriter, r *http.Request, t target, data []byte) (registry.Object, error) {
	if t.ref.Subresource != "scale" {
		return decodeObject(w, r, t, data)
	}
	scale := &autoscalingv1.Scale{}
	if err := decode(w, r, data, scale); err != nil {
		return nil, err
	}
	if err := checkKind(scale.GroupVersionKind(), autoscalingv1.SchemeGroupVersion.WithKind("Scale")); err != nil {
		return nil, err
	}
	return scale, checkName(scale, t.ref, true)
}

// patch applies a patch to the object as it is.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) error {
	typ := types.PatchType(mediaType(r.Header.Get("Content-Type")))
	if typ == types.ApplyYAMLPatchType {
		return s.apply(w, r, t)
	}
	if _, err := patchOptions(r, typ); err != nil {
		return err
	}
	data, err := patchBody(r)
	if err != nil {
		return err
	}
	return s.store(w, r, t, func(cur registry.Object) (registry.Object, error) {
		current, err := s.registry.JSON(r.Context(), cur)
		if err != nil {
			return nil, err
		}
		patched, err := patch.Apply(typ, current, data, cur)
		if err != nil {
			return nil, err
		}
		if len(patched) > maxBody {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the patch makes an object of %d bytes, limit is %d", len(patched), maxBody))
		}
		next, err := decodeFor(w, r, t, patched)
		if err == nil && next.GetUID() == "" {
			next.SetUID(cur.GetUID())
		}
		return next, err
	})
}

// store runs an update and answers with its result.
func (s *Server) store(w http.ResponseWriter, r *http.Request, t target, change func(registry.Object) (registry.Object, error)) error {
	switch t.ref.Subresource {
	case "", "status", "scale", "finalize", "ephemeralcontainers", "resize":
	default:
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiateWrite(r)
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	if r, err = withFieldManager(r); err != nil {
		return err
	}
	stored, err := s.registry.Update(r.Context(), t.ref, change)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, stored)
}
