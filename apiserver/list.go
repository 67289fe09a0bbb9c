package apiserver

import (
	"math"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/request"
)

// listOrWatch sends all selected objects at one revision, or the changes after one.
func (s *Server) listOrWatch(w http.ResponseWriter, r *http.Request, t target) error {
	opts, err := request.ReadListOptions(r.URL.Query(), t.ref)
	if err != nil {
		return err
	}
	if a, ok := s.computed.of(t); ok {
		return s.computed.list(w, r, t, a, opts)
	}
	if opts.Watch {
		return s.watches.Serve(w, r, t.res, opts)
	}
	f, err := codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	page := registry.Page{Limit: int(min(opts.Limit, math.MaxInt32)), Continue: opts.Continue}
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		page.At = opts.Rev
	}
	list, err := s.registry.Page(r.Context(), opts.Sel, page)
	if err != nil {
		return err
	}
	if opts.Rev > list.Revision {
		return apierror.FutureRevision(opts.Rev, list.Revision)
	}
	meta := metav1.ListMeta{
		ResourceVersion: strconv.FormatInt(list.Revision, 10), Continue: list.Continue, RemainingItemCount: list.Remaining}
	return s.out.SendEntries(w, r, f, t.res, list.Entries, meta)
}
