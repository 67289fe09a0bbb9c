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

// apply is server-side apply: the body is the desired state of a field manager. An object that does not exist is
// created, if the user may create it.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := t.negotiate(r)
	if err != nil {
		return err
	}
	asked, err := request.PatchOptions(r, types.ApplyYAMLPatchType)
	if err != nil {
		return err
	}
	opts := registry.ApplyOptions{Manager: asked.FieldManager, Force: asked.Force != nil && *asked.Force,
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

// decodeApply decodes the body of an apply, YAML or JSON, to an object stored as current, and checks that it
// matches the path.
func decodeApply(w http.ResponseWriter, r *http.Request, t target, current []byte) (*unstructured.Unstructured, error) {
	strict, err := codec.FieldValidation(r)
	if err != nil {
		return nil, err
	}
	data, err := codec.ReadAll(r)
	if err != nil {
		return nil, err
	}
	data, doubled, err := codec.ApplyJSON(r, data)
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
	doubled = append(doubled, more...)
	if err := strict.Judge(w, doubled); err != nil {
		return nil, err
	}
	if err := codec.CheckAmounts(obj, t.res.New()); err != nil {
		return nil, err
	}
	return obj, codec.CheckName(obj, t.ref, t.res.Namespaced)
}
