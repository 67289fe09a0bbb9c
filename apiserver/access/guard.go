// Package access authenticates, impersonates, authorizes and audits requests (Guard). Its subpackages are users
// and their certificates (auth), listeners (entry), authorizers (rbac, node), service account tokens (token), the
// audit log (audit), and what only admins may use (admin).
package access

import (
	"context"
	"errors"
	"net/http"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
	"monopod/apiserver/request"
)

// Config of a guard. Authenticator and Fail are required.
type Config struct {
	Authenticator auth.Authenticator
	// nil: everything is allowed
	Authorizer auth.Authorizer
	// nil: no audit log
	Audit *audit.Log
	// Fail answers a request that is refused.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
}

// Guard authenticates and authorizes requests.
type Guard struct {
	Config
	crossOrigin *http.CrossOriginProtection
}

// New returns a guard.
func New(cfg Config) *Guard {
	return &Guard{Config: cfg, crossOrigin: http.NewCrossOriginProtection()}
}

// Identify adds the user to the request's context, if it can be authenticated; it refuses no request.
func (g *Guard) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, ok := g.Authenticator.Authenticate(r); ok {
			r = r.WithContext(auth.WithUser(r.Context(), user))
		} else {
			disconnect(w, r)
		}
		next.ServeHTTP(w, r)
	})
}

// disconnect ends the HTTP/2 connection of an unknown client after its running requests, since one connection can ask
// for much (upstream: UnauthenticatedHTTP2DOSMitigation).
func disconnect(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		w.Header().Set("Connection", "close")
	}
}

// warningCode is that of HTTP for warnings that concern the response until it is used.
const warningCode = 299

// Authenticate refuses requests without a known user with 401, adds the user to the context, sends the warning about
// the credential, and applies impersonation.
func (g *Guard) Authenticate(next http.Handler) http.Handler {
	next = g.impersonate(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := g.WhoIs(r)
		if err != nil {
			if apierrors.IsUnauthorized(err) {
				disconnect(w, r)
			}
			g.Fail(w, r, err)
			return
		}
		if user.Warning != "" {
			if warning, err := utilnet.NewWarningHeader(warningCode, "-", user.Warning); err == nil {
				w.Header().Add("Warning", warning)
			}
		}
		next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
	})
}

// WhoIs returns the user of a request, or a 401 error. A browser sends a client certificate with requests of any
// page; those of other origins get a 403 error.
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
	if auth.HasCertificate(r) && fromBrowser(r) {
		if err := g.crossOrigin.Check(request.AsWrite(r)); err != nil {
			return user, apierrors.NewForbidden(request.GroupResource(r), "", err)
		}
	}
	return user, nil
}

// fromBrowser reports whether a browser sends the request: all name themselves so, and a page cannot change it for
// another origin without asking. Other clients, such as Kubernetes' conformance tests, name any origin.
func fromBrowser(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// ruler is an Authorizer that can list its rules.
type ruler interface {
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

// Rules returns everything that the user may do in the namespace.
func (g *Guard) Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	if of, ok := g.Authorizer.(ruler); ok {
		return of.Rules(ctx, u, namespace)
	}
	if g.Authorizer != nil {
		return nil, errors.New("the authorizer cannot list its rules")
	}
	all := []string{"*"}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}, nil
}
