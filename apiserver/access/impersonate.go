package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/request"
)

// impersonate replaces the request's user by the one in its Impersonate- headers. It sends a 403 error if the user may
// not impersonate a part of that user.
func (g *Guard) impersonate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as, ok, err := request.Impersonated(r.Header)
		if err != nil {
			g.Fail(w, r, err)
			return
		}
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		actor := auth.UserOf(r.Context())
		for _, a := range impersonations(as) {
			a.User, a.Verb = actor, "impersonate"
			if err := g.Authorize(r.Context(), a); err != nil {
				g.Fail(w, r, err)
				return
			}
		}
		for name := range r.Header { // a proxied request must not contain them
			if strings.HasPrefix(name, "Impersonate-") {
				r.Header.Del(name)
			}
		}
		ctx := context.WithValue(r.Context(), actorKey{}, actor)
		next.ServeHTTP(w, r.WithContext(auth.WithUser(ctx, withImpliedGroups(as))))
	})
}

// impersonations returns the objects for which the verb impersonate is required: a user or service account, and each
// group, extra value and UID.
func impersonations(as auth.User) []auth.Attributes {
	about := func(resource, sub, name string) auth.Attributes {
		return auth.Attributes{Group: authenticationv1.GroupName, Version: "v1", Resource: resource, Subresource: sub,
			Name: name}
	}
	all := []auth.Attributes{{Version: "v1", Resource: "users", Name: as.Name}}
	if namespace, name, ok := auth.SplitServiceAccount(as.Name); ok {
		all[0].Resource, all[0].Namespace, all[0].Name = "serviceaccounts", namespace, name
	}
	for _, group := range as.Groups {
		all = append(all, auth.Attributes{Version: "v1", Resource: "groups", Name: group})
	}
	for key, values := range as.Extra {
		for _, value := range values {
			all = append(all, about("userextras", key, value))
		}
	}
	if as.UID != "" {
		all = append(all, about("uids", "", as.UID))
	}
	return all
}

// withImpliedGroups adds the groups of all service accounts and of all authenticated users.
func withImpliedGroups(u auth.User) auth.User {
	if namespace, _, ok := auth.SplitServiceAccount(u.Name); ok && len(u.Groups) == 0 {
		u.Groups = auth.ServiceAccountGroups(namespace)
	}
	implied := auth.Authenticated
	if u.Name == auth.Anonymous {
		implied = auth.Unauthenticated
	}
	if !slices.Contains(u.Groups, auth.Authenticated) && !slices.Contains(u.Groups, auth.Unauthenticated) {
		u.Groups = append(u.Groups, implied)
	}
	return u
}

// actorKey is the context key of the user who impersonates another one.
type actorKey struct{}
