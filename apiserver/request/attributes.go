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

// Attributes returns the attributes of a request for ref. As upstream (RequestInfoFactory), the namespace of a request
// for a Namespace is its name, and a list whose field selector selects one name has that name.
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
	case !hasVerb(r.Method): // a proxied request: only users who may do everything are authorized
		a.Verb = ""
	case a.Verb == "list" || a.Verb == "watch":
		a.Fields = fieldRequirements(r)
		a.Name = selectedName(a.Fields)
	case a.Verb == "deletecollection":
		a.Fields = fieldRequirements(r)
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

// fieldRequirements returns the requirements of the field selector, or nil if it is invalid: the handler returns the
// error.
func fieldRequirements(r *http.Request) fields.Requirements {
	if !strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return nil
	}
	sel, err := ParseFields(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil
	}
	return sel.Requirements()
}

// selectedName returns the name that a field selector selects, or an empty string.
func selectedName(requirements fields.Requirements) string {
	for _, f := range requirements {
		if f.Field == "metadata.name" && f.Operator == selection.Equals && len(content.IsPathSegmentName(f.Value)) == 0 {
			return f.Value
		}
	}
	return ""
}
