package apiserver

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/audit"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/apiserver/request"
)

// apply handles a server-side apply. It creates an object that does not exist, if the user may create it.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := t.negotiate(r)
	if err != nil {
		return err
	}
	query, err := request.PatchOptions(r, types.ApplyYAMLPatchType)
	if err != nil {
		return err
	}
	opts := registry.ApplyOptions{Manager: query.FieldManager, Force: query.Force != nil && *query.Force,
		MayCreate: func() error {
			a := request.Attributes(r, t.ref)
			a.Verb = "create"
			return s.guard.Authorize(r.Context(), a)
		}}
	patch, err := decodeApply(w, r, t, s.current(r, t))
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	obj, created, err := s.registry.Apply(r.Context(), t.ref, patch, opts)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return s.answer(w, r, f, t, code, obj)
}

// decodeApply decodes the body of an apply, YAML or JSON, and checks that it matches the path. current is the stored
// object, for the estimate of the memory that the apply needs.
func decodeApply(w http.ResponseWriter, r *http.Request, t target, current []byte) (*unstructured.Unstructured, error) {
	strict, err := codec.FieldValidation(r)
	if err != nil {
		return nil, err
	}
	data, err := codec.ReadAll(r)
	if err != nil {
		return nil, err
	}
	data, duplicates, err := codec.ApplyJSON(r, data)
	if err != nil {
		return nil, err
	}
	if err := codec.AccountOf(r.Context()).AdmitPatch(r, types.ApplyYAMLPatchType, data, current); err != nil {
		return nil, err
	}
	audit.Of(r.Context()).Sent(data)
	obj, more, err := codec.DecodePatch(data)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	duplicates = append(duplicates, more...)
	if err := strict.Judge(w, duplicates); err != nil {
		return nil, err
	}
	if err := codec.CheckAmounts(obj, t.res.New()); err != nil {
		return nil, err
	}
	return obj, codec.CheckName(obj, t.ref, t.res.Namespaced)
}
