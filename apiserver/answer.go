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

// computed handles requests for resources that are computed instead of stored.
type computed struct {
	answers virtual.Answers
	out     *codec.Responder
}

// of returns the Answer that computes the target. It returns false for a stored resource.
func (s computed) of(t target) (virtual.Answer, bool) {
	at := t.ref.Resource
	if t.ref.Subresource != "" {
		at.Resource += "/" + t.ref.Subresource
	}
	a, ok := s.answers[at]
	return a, ok
}

// create handles a POST.
func (s computed) create(w http.ResponseWriter, r *http.Request, t target, a virtual.Answer) error {
	if a.Create == nil {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := codec.Negotiate(r, "PartialObjectMetadata") // computed resources have no columns
	if err != nil {
		return err
	}
	obj, err := t.decode(w, r)
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
		out = codec.Partial(obj, f.Shape)
	}
	s.out.Send(w, r, f, http.StatusCreated, out)
	return nil
}

// get returns one object and the response's format.
func (s computed) get(r *http.Request, t target, a virtual.Answer) (f codec.Format, obj registry.Object, err error) {
	if a.Get == nil {
		return f, nil, apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	if f, err = codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadata"); err != nil {
		return f, nil, err
	}
	obj, err = a.Get(r.Context(), t.ref)
	return f, obj, err
}

// list sends the selected objects, which have no resourceVersion.
func (s computed) list(w http.ResponseWriter, r *http.Request, t target, a virtual.Answer,
	opts request.ListOptions) error {
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
		entries[i] = store.NewEncoded(store.Key{}, 0, obj, data)
	}
	return s.out.SendEntries(w, r, f, t.res, entries, metav1.ListMeta{})
}
