package apiserver

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry"
	"monopod/apiserver/request"
)

func (s *Server) create(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.computed.of(t); ok {
		return s.computed.create(w, r, t, a)
	}
	f, err := t.negotiate(r)
	if err != nil {
		return err
	}
	obj, err := t.decode(w, r)
	if err != nil {
		return err
	}
	if r, err = withWriteOptions(r); err != nil {
		return err
	}
	stored, err := s.registry.Create(r.Context(), obj)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusCreated, stored)
}

// withWriteOptions stores dryRun and the field manager of a create, update or patch in the request's context.
func withWriteOptions(r *http.Request) (*http.Request, error) {
	r, err := withDryRun(r)
	if err != nil {
		return r, err
	}
	manager, err := request.FieldManager(r)
	if err != nil {
		return r, err
	}
	return r.WithContext(registry.WithFieldManager(r.Context(), manager)), nil
}

// withDryRun stores dryRun in the request's context: the value in the query, and more values from the body.
func withDryRun(r *http.Request, more ...string) (*http.Request, error) {
	values := slices.DeleteFunc(append(r.URL.Query()["dryRun"], more...), func(v string) bool { return v == "" })
	if errs := metavalidation.ValidateDryRun(field.NewPath("dryRun"), values); len(errs) > 0 || len(values) == 0 {
		return r, request.ErrOptions(r, errs)
	}
	return r.WithContext(registry.DryRun(r.Context())), nil
}

// createSub handles a POST to a subresource: it computes an Answer, such as a binding, or opens a stream.
func (s *Server) createSub(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.computed.of(t); ok {
		return s.computed.create(w, r, t, a)
	}
	if t.sub != nil && !t.sub.Part && t.sub.Can("create") {
		return s.streams.Stream(w, r, t.ref)
	}
	return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
}
