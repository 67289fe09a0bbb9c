package apiserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/client"
	"monopod/apiserver/client/query"
	"monopod/apiserver/registry"
	"monopod/store"
)

// listOptions are a list's or watch's query, read.
type listOptions struct {
	metav1.ListOptions
	sel client.Selector
	rev int64 // 0: not said
}

func (s *Server) listOrWatch(w http.ResponseWriter, r *http.Request, t target) error {
	opts, err := readListOptions(r.URL.Query(), t)
	if err != nil {
		return err
	}
	if a, ok := s.answerFor(t); ok {
		return s.listAnswer(w, r, t, a, opts)
	}
	if opts.Watch {
		return s.watch(w, r, t, opts)
	}
	return s.list(w, r, t, opts)
}

func readListOptions(q url.Values, t target) (listOptions, error) {
	o := listOptions{sel: client.Selector{Resource: t.ref.Resource, Namespace: t.ref.Namespace}}
	var err error
	if o.sel.Labels, err = parseLabels(q.Get("labelSelector")); err != nil {
		return o, err
	}
	if o.sel.Fields, err = parseFields(q.Get("fieldSelector")); err != nil {
		return o, err
	}
	if o.rev, err = registry.ParseRevision(q.Get("resourceVersion")); err != nil {
		return o, err
	}
	o.ResourceVersion = q.Get("resourceVersion")
	o.ResourceVersionMatch = metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	for name, into := range map[string]*bool{"watch": &o.Watch, "allowWatchBookmarks": &o.AllowWatchBookmarks} {
		if *into, err = query.Bool(q, name); err != nil {
			return o, err
		}
	}
	if q.Has("sendInitialEvents") {
		initial, err := query.Bool(q, "sendInitialEvents")
		if err != nil {
			return o, err
		}
		o.SendInitialEvents = &initial
	}
	o.Continue = q.Get("continue")
	if v := q.Get("limit"); v != "" {
		if o.Limit, err = strconv.ParseInt(v, 10, 64); err != nil || o.Limit < 0 {
			return o, apierrors.NewBadRequest("limit: Invalid value: " + strconv.Quote(v) + ": must be a whole number, at least 0")
		}
	}
	if v := q.Get("timeoutSeconds"); v != "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return o, apierrors.NewBadRequest("timeoutSeconds: Invalid value: " + strconv.Quote(v) + ": must be a whole number of seconds")
		}
		o.TimeoutSeconds = &seconds
	}
	if errs := validateListOptions(o); len(errs) > 0 {
		return o, invalidOptions("ListOptions", errs)
	}
	return o, nil
}

// validateListOptions refuses options that contradict each other (upstream:
// internalversion/validation.ValidateListOptions).
func validateListOptions(o listOptions) (errs field.ErrorList) {
	match, initial := o.ResourceVersionMatch, o.SendInitialEvents
	matchPath, initialPath := field.NewPath("resourceVersionMatch"), field.NewPath("sendInitialEvents")
	if match != "" && match != metav1.ResourceVersionMatchExact && match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.NotSupported(matchPath, match, []metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}))
	}
	if o.Continue != "" && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		errs = append(errs, field.Forbidden(field.NewPath("resourceVersion"), "specifying resource version is not allowed when using continue"))
	}
	switch {
	case initial != nil && !o.Watch:
		errs = append(errs, field.Forbidden(initialPath, "sendInitialEvents is forbidden for list"))
	case initial != nil && match != metav1.ResourceVersionMatchNotOlderThan:
		errs = append(errs, field.Forbidden(matchPath, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	case initial == nil && match != "" && o.Watch:
		errs = append(errs, field.Forbidden(matchPath, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	case initial == nil && match != "" && o.ResourceVersion == "":
		errs = append(errs, field.Forbidden(matchPath, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
	case match == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0":
		errs = append(errs, field.Forbidden(matchPath, `resourceVersionMatch "Exact" is forbidden for resourceVersion "0"`))
	}
	return errs
}

// list answers everything that is selected, as it is at one revision.
func (s *Server) list(w http.ResponseWriter, r *http.Request, t target, opts listOptions) error {
	f, err := negotiate(r, "Table", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	page := registry.Page{Limit: int(min(opts.Limit, math.MaxInt32)), Continue: opts.Continue}
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		page.At = opts.rev
	}
	list, err := s.registry.Page(r.Context(), opts.sel, page)
	if err != nil {
		return err
	}
	if opts.rev > list.Revision {
		return registry.ErrFutureRevision(opts.rev, list.Revision)
	}
	meta := metav1.ListMeta{
		ResourceVersion: strconv.FormatInt(list.Revision, 10), Continue: list.Continue, RemainingItemCount: list.Remaining}
	return s.sendEntries(w, r, f, t.res, list.Entries, meta)
}

// sendEntries answers with a list in the shape that the client wants.
func (s *Server) sendEntries(w http.ResponseWriter, r *http.Request, f format, res *registry.Resource, entries []*store.Entry, meta metav1.ListMeta) error {
	switch f.as {
	case "Table":
		return s.listTable(w, r, res, f, entries, meta)
	case "PartialObjectMetadataList":
		s.send(w, r, f, http.StatusOK, partialList(entries, meta))
		return nil
	}
	return s.sendList(w, r, f, res, entries, meta)
}

func partialList(entries []*store.Entry, meta metav1.ListMeta) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: make([]metav1.PartialObjectMetadata, len(entries))}
	list.Kind, list.APIVersion = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	for i, e := range entries {
		list.Items[i] = *metaOf(e.Object)
	}
	return list
}

func (s *Server) listTable(w http.ResponseWriter, r *http.Request, res *registry.Resource, f format, entries []*store.Entry, meta metav1.ListMeta) error {
	include, err := includeObject(r)
	if err != nil {
		return err
	}
	t := newTable(res, include)
	t.ListMeta = meta
	now := s.now()
	for _, e := range entries {
		if err := t.add(e, now); err != nil {
			return err
		}
	}
	s.send(w, r, f, http.StatusOK, t)
	return nil
}

// sendList splices the entries' own bytes into a list, straight into the answer:
// a long list never stands in memory as a whole.
func (s *Server) sendList(w http.ResponseWriter, r *http.Request, f format, res *registry.Resource, entries []*store.Entry, meta metav1.ListMeta) error {
	if s.recordOf(r).Wants(audit.RequestResponse) {
		var whole bytes.Buffer
		if head, err := listHead(res, meta); err == nil {
			writeList(&whole, head, entries)
			audit.Of(r.Context()).Answered(whole.Bytes())
		}
	}
	if f.media == typeProtobuf {
		return s.sendProtobufList(w, r, res, entries, meta)
	}
	head, err := listHead(res, meta)
	if err != nil {
		return err
	}
	if f.media == typeYAML || pretty(r) {
		var whole bytes.Buffer
		writeList(&whole, head, entries)
		s.send(w, r, f, http.StatusOK, json.RawMessage(whole.Bytes()))
		return nil
	}
	size := len(head) + len(listTail) + max(len(entries)-1, 0)
	for _, e := range entries {
		size += len(e.JSON)
	}
	stream(begin(w, r, typeJSON, http.StatusOK, size), func(out io.Writer) { writeList(out, head, entries) })
	return nil
}

// sendProtobufList encodes one item after the other into the answer.
func (s *Server) sendProtobufList(w http.ResponseWriter, r *http.Request, res *registry.Resource, entries []*store.Entry, meta metav1.ListMeta) error {
	list, err := newProtobufList(res.GVR.GroupVersion().WithKind(res.Kind+"List"), meta, entries)
	if err != nil {
		return err
	}
	stream(begin(w, r, typeProtobuf, http.StatusOK, list.length()), func(out io.Writer) {
		if err := list.write(out); err != nil {
			s.Log.Error("cannot encode an item of a list", zap.String("path", r.URL.Path), zap.Error(err))
			panic(http.ErrAbortHandler) // the answer has begun
		}
	})
	return nil
}

// stream writes an answer in large pieces and ends it.
func stream(w io.WriteCloser, write func(io.Writer)) {
	out := bufio.NewWriterSize(w, listBuffer)
	write(out)
	out.Flush() // a client that went away is no error of ours
	w.Close()
}

const (
	listTail   = "]}\n"
	listBuffer = 64 << 10
)

func listHead(res *registry.Resource, meta metav1.ListMeta) ([]byte, error) {
	data, err := json.Marshal(meta)
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, res.Kind+"List", res.GVR.GroupVersion(), data), err
}

// writeList writes to something that keeps its own error.
func writeList(w io.Writer, head []byte, entries []*store.Entry) {
	w.Write(head)
	for i, e := range entries {
		if i > 0 {
			io.WriteString(w, ",")
		}
		w.Write(e.JSON)
	}
	io.WriteString(w, listTail)
}
