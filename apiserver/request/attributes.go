package request

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// Attributes returns the attributes of a request about ref. The namespace of a request for a namespace is that
// namespace, and a list whose field selector selects one name has that name (upstream: RequestInfoFactory).
func Attributes(r *http.Request, ref client.Ref) auth.Attributes {
	a := auth.Attributes{
		User: auth.UserOf(r.Context()), Verb: Verb(r, ref),
		Namespace: ref.Namespace, Group: ref.Resource.Group, Version: ref.Resource.Version,
		Resource: ref.Resource.Resource, Subresource: ref.Subresource, Name: ref.Name,
	}
	if a.Resource == client.Namespaces.Resource && a.Group == "" {
		a.Namespace = ref.Name
	}
	switch {
	case !hasVerb(r.Method): // proxied; only for users who may do everything
		a.Verb = ""
	case a.Verb == "list" || a.Verb == "watch":
		a.Fields = selected(r)
		a.Name = selectedName(a.Fields)
	case a.Verb == "deletecollection":
		a.Fields = selected(r)
	}
	return a
}

// hasVerb reports whether a method has a Kubernetes verb.
func hasVerb(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// selected returns the requirements of the field selector; none if it is invalid, which the handler reports.
func selected(r *http.Request) fields.Requirements {
	if !strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return nil
	}
	sel, err := ParseFields(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil
	}
	return sel.Requirements()
}

// selectedName returns the one name that a field selector selects.
func selectedName(asked fields.Requirements) string {
	for _, f := range asked {
		if f.Field == "metadata.name" && f.Operator == selection.Equals && len(content.IsPathSegmentName(f.Value)) == 0 {
			return f.Value
		}
	}
	return ""
}
