package request

import (
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/query"
)

// ListOptions are the parsed query of a list or watch.
type ListOptions struct {
	metav1.ListOptions
	Sel client.Selector
	Rev int64 // 0: not set
}

// ReadListOptions parses the query of a list or watch of ref. It returns a 400 error for an invalid query.
func ReadListOptions(q url.Values, ref client.Ref) (ListOptions, error) {
	o := ListOptions{Sel: client.Selector{Resource: ref.Resource, Namespace: ref.Namespace}}
	var err error
	if o.Sel.Labels, err = parseLabels(q.Get("labelSelector")); err != nil {
		return o, err
	}
	if o.Sel.Fields, err = ParseFields(q.Get("fieldSelector")); err != nil {
		return o, err
	}
	if o.Rev, err = query.Revision(q.Get("resourceVersion")); err != nil {
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
			return o, apierrors.NewBadRequest("limit: Invalid value: " + strconv.Quote(v) +
				": must be a whole number, at least 0")
		}
	}
	if v := q.Get("timeoutSeconds"); v != "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return o, apierrors.NewBadRequest("timeoutSeconds: Invalid value: " + strconv.Quote(v) +
				": must be a whole number of seconds")
		}
		o.TimeoutSeconds = &seconds
	}
	if errs := validateListOptions(o); len(errs) > 0 {
		return o, InvalidOptions("ListOptions", errs)
	}
	return o, nil
}

// validateListOptions refuses options that contradict each other (upstream:
// internalversion/validation.ValidateListOptions).
func validateListOptions(o ListOptions) (errs field.ErrorList) {
	match, initial := o.ResourceVersionMatch, o.SendInitialEvents
	matchPath, initialPath := field.NewPath("resourceVersionMatch"), field.NewPath("sendInitialEvents")
	if match != "" && match != metav1.ResourceVersionMatchExact && match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs,
			field.NotSupported(matchPath, match,
				[]metav1.ResourceVersionMatch{metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan}))
	}
	if o.Continue != "" && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		errs = append(errs,
			field.Forbidden(field.NewPath("resourceVersion"), "specifying resource version is not allowed when using continue"))
	}
	switch {
	case initial != nil && !o.Watch:
		errs = append(errs, field.Forbidden(initialPath, "sendInitialEvents is forbidden for list"))
	case initial != nil && match != metav1.ResourceVersionMatchNotOlderThan:
		errs = append(errs,
			field.Forbidden(matchPath, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	case initial == nil && match != "" && o.Watch:
		errs = append(errs,
			field.Forbidden(matchPath, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	case initial == nil && match != "" && o.ResourceVersion == "":
		errs = append(errs,
			field.Forbidden(matchPath, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
	case match == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0":
		errs = append(errs, field.Forbidden(matchPath, `resourceVersionMatch "Exact" is forbidden for resourceVersion "0"`))
	}
	return errs
}
