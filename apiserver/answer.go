package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// Answers are what is computed instead of stored: by virtual resource, or by
// subresource, whose Resource is then "serviceaccounts/token". The kinds must
// list them too (kind.Resource.Virtual, Subresources), for discovery.
type Answers map[schema.GroupVersionResource]Answer

// Answer computes one of them. A function that is nil is a verb that is not
// served. What they return has its TypeMeta set.
type Answer struct {
	// New makes what the body of a POST is decoded into, of the kind named; nil: an
	// object of the resource itself.
	New  func() registry.Object
	Kind schema.GroupVersionKind

	// Create answers a POST, with 201. obj has the path's namespace and, for a
	// subresource, the path's name.
	Create func(ctx context.Context, ref client.Ref, obj registry.Object) (runtime.Object, error)
	Get    func(ctx context.Context, ref client.Ref) (registry.Object, error)
	List   func(ctx context.Context, sel client.Selector) ([]registry.Object, error)
}

// answerFor is what computes the target; false for one that is stored.
func (s *Server) answerFor(t target) (Answer, bool) {
	at := t.ref.Resource
	if t.ref.Subresource != "" {
		at.Resource += "/" + t.ref.Subresource
	}
	a, ok := s.Answers[at]
	return a, ok
}

func (a Answer) decode(w http.ResponseWriter, r *http.Request, t target) (registry.Object, error) {
	data, err := body(r)
	if err != nil {
		return nil, err
	}
	if a.New == nil {
		return decodeObject(w, r, t, data)
	}
	obj := a.New()
	if err := decode(w, r, data, obj); err != nil {
		return nil, err
	}
	if err := checkKind(obj.GetObjectKind().GroupVersionKind(), a.Kind); err != nil {
		return nil, err
	}
	return obj, checkName(obj, t.ref, t.res.Namespaced)
}

func (s *Server) createAnswer(w http.ResponseWriter, r *http.Request, t target, a Answer) error {
	if a.Create == nil {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiate(r, "PartialObjectMetadata") // what is computed has no columns
	if err != nil {
		return err
	}
	obj, err := a.decode(w, r, t)
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
	if obj, ok := out.(registry.Object); ok && f.as != "" {
		out = partial(obj)
	}
	s.send(w, r, f, http.StatusCreated, out)
	return nil
}

func (s *Server) getAnswer(w http.ResponseWriter, r *http.Request, t target, a Answer) error {
	if a.Get == nil {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiateAnswer(r, t.res, "Table", "PartialObjectMetadata")
	if err != nil {
		return err
	}
	obj, err := a.Get(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, obj)
}

func (s *Server) listAnswer(w http.ResponseWriter, r *http.Request, t target, a Answer, opts listOptions) error {
	if a.List == nil || opts.Watch {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	f, err := negotiateAnswer(r, t.res, "Table", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	objs, err := a.List(r.Context(), opts.sel)
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
	return s.sendEntries(w, r, f, t.res, entries, metav1.ListMeta{})
}

// negotiateAnswer is negotiate for a kind that may have no form in protobuf: a
// client that takes something else too gets that, as upstream does for custom
// resources.
func negotiateAnswer(r *http.Request, res *registry.Resource, as ...string) (format, error) {
	f, err := negotiate(r, as...)
	if err != nil || f.media != typeProtobuf || f.as != "" {
		return f, err
	}
	if _, ok := res.New().(message); ok {
		return f, nil
	}
	rest := slices.DeleteFunc(clauses(r.Header.Get("Accept")), func(c clause) bool { return c.media == typeProtobuf })
	for _, c := range rest {
		if other, ok := c.format(as); ok {
			return other, nil
		}
	}
	return f, nil // which is refused, naming the type
}
