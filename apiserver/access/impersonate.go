package access

import (
	"context"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/request"
)

// impersonate replaces the request's user by the one in its Impersonate- headers, if the user may impersonate
// each part of it.
func (g *Guard) impersonate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as, asked, err := request.Impersonated(r.Header)
		if err == nil && asked {
			err = g.mayImpersonate(r.Context(), as)
		}
		if err != nil {
			g.Fail(w, r, err)
			return
		}
		if asked {
			r = r.WithContext(auth.WithUser(withActor(r.Context()), withImpliedGroups(as)))
			forgetImpersonation(r.Header)
		}
		next.ServeHTTP(w, r)
	})
}

// mayImpersonate returns a 403 error for the first part of the user that may not be impersonated.
func (g *Guard) mayImpersonate(ctx context.Context, as auth.User) error {
	for _, a := range impersonations(as) {
		a.User, a.Verb = auth.UserOf(ctx), "impersonate"
		if err := g.Authorize(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// impersonations are the objects that the verb impersonate is needed for: a user or service account, and each
// group, extra value and uid.
func impersonations(as auth.User) []auth.Attributes {
	about := func(resource, sub, name string) auth.Attributes {
		return auth.Attributes{Group: authenticationv1.GroupName, Version: "v1", Resource: resource, Subresource: sub, Name: name}
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

// withImpliedGroups adds the groups that every such user is a member of.
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

// forgetImpersonation removes the headers, so that a proxied request does not contain them.
func forgetImpersonation(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
}

type actorKey struct{}

// withActor records the user of ctx as the one who impersonates, before the user is replaced.
func withActor(ctx context.Context) context.Context {
	return context.WithValue(ctx, actorKey{}, auth.UserOf(ctx))
}

// actorOf returns the user who impersonates the user of ctx; false without impersonation.
func actorOf(ctx context.Context) (auth.User, bool) {
	u, ok := ctx.Value(actorKey{}).(auth.User)
	return u, ok
}
