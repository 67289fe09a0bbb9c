package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
	"monopod/apiserver/request"
)

// Permit returns a 403 error if the user is not authorized for the request.
func (g *Guard) Permit(r *http.Request) error {
	return g.Authorize(r.Context(), request.Attributes(r, request.Ref(r)))
}

// PermitEntering returns a 403 error if the request opens a stream to a container with the GET of a WebSocket and
// the user does not have the verb create (upstream since 1.35: AuthorizePodWebsocketUpgradeCreatePermission).
func (g *Guard) PermitEntering(r *http.Request) error {
	a := request.Attributes(r, request.Ref(r))
	if a.Verb != "get" {
		return nil
	}
	a.Verb = "create"
	return g.Authorize(r.Context(), a)
}

// AuthorizePath calls next for a non-resource path if the user is authorized, and sends a 403 error otherwise.
func (g *Guard) AuthorizePath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := auth.Attributes{User: auth.UserOf(r.Context()), Verb: strings.ToLower(r.Method), Path: r.URL.Path}
		if err := g.Authorize(r.Context(), a); err != nil {
			g.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Authorize returns a 403 error if the user is not allowed to do a.
func (g *Guard) Authorize(ctx context.Context, a auth.Attributes) error {
	allowed, reason, err := g.Allows(ctx, a)
	if g.Audit != nil {
		audit.Of(ctx).Decided(allowed, reason)
	}
	switch {
	case allowed:
		return nil
	case err != nil && ctx.Err() != nil:
		return apierrors.NewTimeoutError("the request ended before authorization was complete", 1)
	case err != nil:
		return apierrors.NewInternalError(err)
	}
	// Upstream's error, word for word, because clients match on it.
	text := cannot(a)
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name,
		fmt.Errorf("%s", text))
}

// Allows asks the authorizer, if there is one. Members of system:masters are always allowed.
func (g *Guard) Allows(ctx context.Context, a auth.Attributes) (allowed bool, reason string, err error) {
	if g.Authorizer == nil || slices.Contains(a.User.Groups, auth.Masters) {
		return true, "", nil
	}
	return g.Authorizer.Authorize(ctx, a)
}

func cannot(a auth.Attributes) string {
	if a.Path != "" {
		return escapeHTML(fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path))
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	scope := "at the cluster scope"
	if a.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return escapeHTML(
		fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Name, a.Verb, resource, a.Group, scope))
}

// escapeHTML escapes text from the client, so that no browser renders it as HTML.
func escapeHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
