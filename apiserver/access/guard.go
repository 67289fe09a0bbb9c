// Package access is who a client is and what it may do: the Guard authenticates,
// impersonates, authorizes and audits requests. Below it are the users and their
// certificates (auth), the listeners through which they come in (entry), the
// authorizers (rbac, node), tokens of service accounts and the audit log.
package access

import (
	"context"
	"errors"
	"net/http"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/access/audit"
	"monopod/apiserver/access/auth"
	"monopod/apiserver/request"
)

// Config of a guard. Authenticator and Fail are required.
type Config struct {
	Authenticator auth.Authenticator
	// Authorizer decides what users may do; nil: everything.
	Authorizer auth.Authorizer
	// Audit gets what they ask for; nil: nothing is written down.
	Audit *audit.Log
	// Fail answers who is turned away.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Guard lets in who may come in, and knows what they may do.
type Guard struct {
	Config
	crossOrigin *http.CrossOriginProtection
}

// New returns a guard.
func New(cfg Config) *Guard {
	return &Guard{Config: cfg, crossOrigin: http.NewCrossOriginProtection()}
}

// Identify notes who a request comes from; nobody is turned away.
func (g *Guard) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, ok := g.Authenticator.Authenticate(r); ok {
			r = r.WithContext(auth.WithUser(r.Context(), user))
		}
		next.ServeHTTP(w, r)
	})
}

// Authenticate lets known users in, as themselves or as whom they may
// impersonate.
func (g *Guard) Authenticate(next http.Handler) http.Handler {
	next = g.impersonate(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.WhoIs(r)
		if err != nil {
			g.Fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	})
}

// WhoIs is the user that a request comes from, or a 401. A browser sends a client
// certificate along with what any page asks for, so that then the page must be
// ours, or it is a 403.
func (g *Guard) WhoIs(r *http.Request) (auth.User, error) {
	if err := auth.TakeSocketToken(r); err != nil {
		return auth.User{}, apierrors.NewUnauthorized(err.Error())
	}
	user, ok := auth.Known(r.Context())
	if !ok {
		user, ok = g.Authenticator.Authenticate(r)
	}
	if !ok {
		return user, apierrors.NewUnauthorized("Unauthorized")
	}
	if auth.HasCertificate(r) {
		if err := g.crossOrigin.Check(request.AsWrite(r)); err != nil {
			return user, apierrors.NewForbidden(request.GroupResource(r), "", err)
		}
	}
	return user, nil
}

// ruler is an Authorizer that can list what it allows.
type ruler interface {
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

// Rules are all that the user may do in the namespace.
func (g *Guard) Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	if of, ok := g.Authorizer.(ruler); ok {
		return of.Rules(ctx, u, namespace)
	}
	if g.Authorizer != nil {
		return nil, errors.New("the authorizer does not list what it allows")
	}
	all := []string{"*"}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}, nil
}
