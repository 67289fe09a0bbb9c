package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
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
	if opts.Watch {
		return s.watch(w, r, t, opts)
	}
	return s.list(w, r, t, opts)
}

func readListOptions(q url.Values, t target) (listOptions, error) {
	o := listOptions{sel: client.Selector{Resource: t.ref.Resource, Namespace: t.ref.Namespace}}
	var err error
	if o.sel.Labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return o, apierrors.NewBadRequest("unable to parse requirement: labelSelector: " + err.Error())
	}
	if o.sel.Fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return o, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	if o.rev, err = registry.ParseRevision(q.Get("resourceVersion")); err != nil {
		return o, err
	}
	o.ResourceVersion = q.Get("resourceVersion")
	o.ResourceVersionMatch = metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	for name, into := range map[string]*bool{"watch": &o.Watch, "allowWatchBookmarks": &o.AllowWatchBookmarks} {
		if *into, err = readBool(q, name); err != nil {
			return o, err
		}
	}
	if q.Has("sendInitialEvents") {
		initial, err := readBool(q, "sendInitialEvents")
		if err != nil {
			return o, err
		}
		o.SendInitialEvents = &initial
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

// readBool reads a flag as the API does: present without a value is true.
func readBool(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); strings.ToLower(v) {
	case "":
		return q.Has(name), nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	default:
		return false, apierrors.NewBadRequest(name + ": Invalid value: " + strconv.Quote(v) + ": must be true or false")
	}
}

// list answers everything that is selected, as it is at one revision.
func (s *Server) list(w http.ResponseWriter, r *http.Request, t target, opts listOptions) error {
	f, err := negotiate(r, "Table", "PartialObjectMetadataList")
	if err != nil {
		return err
	}
	entries, rev, err := s.registry.Entries(r.Context(), opts.sel)
	if err != nil {
		return err
	}
	if opts.rev > rev {
		return registry.ErrFutureRevision(opts.rev, rev)
	}
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && opts.rev != rev {
		return registry.ErrExpired("the state at resourceVersion " + opts.ResourceVersion + " is not kept any more")
	}
	switch f.as {
	case "Table":
		return s.listTable(w, r, t.res, f, entries, rev)
	case "PartialObjectMetadataList":
		list := &metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, len(entries))}
		list.Kind, list.APIVersion = f.as, metav1.SchemeGroupVersion.String()
		list.ResourceVersion = strconv.FormatInt(rev, 10)
		for i, e := range entries {
			list.Items[i] = *metaOf(e.Object)
		}
		s.send(w, r, f, http.StatusOK, list)
		return nil
	}
	s.send(w, r, f, http.StatusOK, listJSON(t.res, entries, rev))
	return nil
}

func (s *Server) listTable(w http.ResponseWriter, r *http.Request, res *registry.Resource, f format, entries []*store.Entry, rev int64) error {
	include, err := includeObject(r)
	if err != nil {
		return err
	}
	t := newTable(res, include)
	t.ResourceVersion = strconv.FormatInt(rev, 10)
	now := s.now()
	for _, e := range entries {
		if err := t.add(e, now); err != nil {
			return err
		}
	}
	s.send(w, r, f, http.StatusOK, t)
	return nil
}

// listJSON splices the entries' own bytes into a list.
func listJSON(res *registry.Resource, entries []*store.Entry, rev int64) []byte {
	size := 160
	for _, e := range entries {
		size += len(e.JSON) + 1
	}
	out := slices.Grow([]byte(nil), size)
	out = append(out, `{"kind":"`...)
	out = append(out, res.Kind...)
	out = append(out, `List","apiVersion":"`...)
	out = append(out, res.GVR.GroupVersion().String()...)
	out = append(out, `","metadata":{"resourceVersion":"`...)
	out = strconv.AppendInt(out, rev, 10)
	out = append(out, `"},"items":[`...)
	for i, e := range entries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.JSON...)
	}
	return append(out, "]}\n"...)
}
