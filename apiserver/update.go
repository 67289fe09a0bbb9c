package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/registry"
)

// update replaces an object, or the part of it that belongs to a subresource.
func (s *Server) update(w http.ResponseWriter, r *http.Request, t target) error {
	obj, err := t.decode(w, r)
	if err != nil {
		return err
	}
	return s.store(w, r, t, func(registry.Object) (registry.Object, error) {
		return obj.DeepCopyObject().(registry.Object), nil
	})
}

// store runs an update and sends its result.
func (s *Server) store(w http.ResponseWriter, r *http.Request, t target,
	change func(registry.Object) (registry.Object, error)) error {
	if t.sub != nil && !t.sub.Part {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := t.negotiate(r)
	if err != nil {
		return err
	}
	if r, err = withWriteOptions(r); err != nil {
		return err
	}
	stored, err := s.registry.Update(r.Context(), t.ref, change)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, stored)
}
