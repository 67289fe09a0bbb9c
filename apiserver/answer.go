package apiserver

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/apiserver/request"
	"monopod/apiserver/virtual"
	"monopod/store"
)

// answerFor returns what computes the target; false for a stored resource.
func (s *Server) answerFor(t target) (virtual.Answer, bool) {
	at := t.ref.Resource
	if t.ref.Subresource != "" {
		at.Resource += "/" + t.ref.Subresource
	}
	a, ok := s.answers[at]
	return a, ok
}

func decodeAnswer(w http.ResponseWriter, r *http.Request, t target) (registry.Object, error) {
	data, err := codec.Body(r)
	if err != nil {
		return nil, err
	}
	return codec.DecodeObject(w, r, data, t.body())
}

func (s *Server) createAnswer(w http.ResponseWriter, r *http.Request, t target, a virtual.Answer) error {
	if a.Create == nil {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := codec.Negotiate(r, "PartialObjectMetadata") // computed resources have no columns
	if err != nil {
		return err
	}
	obj, err := decodeAnswer(w, r, t)
	if err != nil {
		return err
	}
	if r, err = withDryRun(r); err != nil {
		return err
	}
	out, err := a.Create(r.Context(), t.ref, obj)
	if err != nil {
		return err
	}
	if obj, ok := out.(registry.Object); ok && f.As != "" {
		out = codec.Partial(obj)
	}
	s.out.Send(w, r, f, http.StatusCreated, out)
	return nil
}

func (s *Server) getAnswer(w http.ResponseWriter, r *http.Request, t target, a virtual.Answer) error {
	if a.Get == nil {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadata")
	if err != nil {
		return err
	}
	obj, err := a.Get(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, obj)
}

func (s *Server) listAnswer(w http.ResponseWriter, r *http.Request, t target, a virtual.Answer, opts request.ListOptions) error {
	if a.List == nil || opts.Watch {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	objs, err := a.List(r.Context(), opts.Sel)
	if err != nil {
		return err
	}
	entries := make([]*store.Entry, len(objs))
	for i, obj := range objs {
		data, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		entries[i] = &store.Entry{Object: obj, JSON: data}
	}
	return s.out.SendEntries(w, r, f, t.res, entries, metav1.ListMeta{})
}
