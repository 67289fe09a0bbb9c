package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
)

// attributesOf is what a request about ref wants to do. A namespace counts as
// being inside itself, and a list that its field selector narrows to one name as
// a list of that name (upstream: RequestInfoFactory).
func attributesOf(r *http.Request, ref client.Ref) auth.Attributes {
	a := auth.Attributes{
		User: auth.UserOf(r.Context()), Verb: verbOf(r, ref),
		Namespace: ref.Namespace, Group: ref.Resource.Group, Version: ref.Resource.Version,
		Resource: ref.Resource.Resource, Subresource: ref.Subresource, Name: ref.Name,
	}
	if a.Resource == client.Namespaces.Resource && a.Group == "" {
		a.Namespace = ref.Name
	}
	switch {
	case !hasVerb(r.Method): // passed on by a proxy, for who may do anything
		a.Verb = ""
	case a.Verb == "list" || a.Verb == "watch":
		a.Fields = selected(r)
		a.Name = selectedName(a.Fields)
	case a.Verb == "deletecollection":
		a.Fields = selected(r)
	}
	return a
}

// hasVerb says that a method has a word of Kubernetes'.
func hasVerb(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// permit is the 403 for a request that its user may not make. To open a stream is
// to create one, also with the GET of a WebSocket (upstream since 1.35:
// AuthorizePodWebsocketUpgradeCreatePermission).
func (s *Server) permit(r *http.Request) error {
	a := attributesOf(r, refOf(r))
	err := s.authorize(r.Context(), a)
	if err == nil && a.Verb == "get" && opensStream(a) {
		a.Verb = "create"
		err = s.authorize(r.Context(), a)
	}
	return err
}

func opensStream(a auth.Attributes) bool {
	return a.Group == "" && a.Resource == client.Pods.Resource &&
		(a.Subresource == "exec" || a.Subresource == "attach" || a.Subresource == "portforward")
}

// selected is what the request's field selector asks for; nothing where it does not
// parse, which the handler says.
func selected(r *http.Request) fields.Requirements {
	if !strings.Contains(r.URL.RawQuery, "fieldSelector") {
		return nil
	}
	sel, err := parseFields(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil
	}
	return sel.Requirements()
}

// selectedName is the one name that a field selector leaves.
func selectedName(asked fields.Requirements) string {
	for _, f := range asked {
		if f.Field == "metadata.name" && f.Operator == selection.Equals && len(content.IsPathSegmentName(f.Value)) == 0 {
			return f.Value
		}
	}
	return ""
}

// authorizePath lets through who may use a path that is no resource.
func (s *Server) authorizePath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := auth.Attributes{User: auth.UserOf(r.Context()), Verb: strings.ToLower(r.Method), Path: r.URL.Path}
		if err := s.authorize(r.Context(), a); err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorize is the 403 for what the user may not do, nil for what they may.
func (s *Server) authorize(ctx context.Context, a auth.Attributes) error {
	allowed, reason, err := s.allows(ctx, a)
	if s.Audit != nil {
		audit.Of(ctx).Decided(allowed, reason)
	}
	switch {
	case allowed:
		return nil
	case err != nil && ctx.Err() != nil:
		return apierrors.NewTimeoutError("the request ended before it was known what the user may do", 1)
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	return forbidden(a, reason)
}

// allows asks the authorizer, if there is one. Masters need not ask.
func (s *Server) allows(ctx context.Context, a auth.Attributes) (allowed bool, reason string, err error) {
	if s.Authorizer == nil || slices.Contains(a.User.Groups, auth.Masters) {
		return true, "", nil
	}
	return s.Authorizer.Authorize(ctx, a)
}

// forbidden is upstream's refusal, word for word, since clients match on it.
func forbidden(a auth.Attributes, reason string) error {
	text := cannot(a)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, fmt.Errorf("%s", text))
}

func cannot(a auth.Attributes) string {
	if a.Path != "" {
		return plainText(fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path))
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	scope := "at the cluster scope"
	if a.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return plainText(fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Name, a.Verb, resource, a.Group, scope))
}

// plainText keeps what a client chose from looking like HTML.
func plainText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
