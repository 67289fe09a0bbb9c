// Package access authenticates, impersonates, authorizes and audits requests (Guard). Its subpackages contain listeners
// and certificates (entry), authorizers (rbac, node) and service account tokens (token).
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

// Config configures a Guard. Authenticator and Fail are required.
type Config struct {
	Authenticator auth.Authenticator
	// nil: everything is allowed
	Authorizer auth.Authorizer
	// nil: no audit log
	Audit *audit.Log
	// Fail sends the error of a request that is refused.
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

// Identify adds the user to the request's context if the request authenticates one. It refuses no request.
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

// disconnect closes the HTTP/2 connection of an unauthenticated client after its running requests, because one
// connection can carry many requests (upstream: UnauthenticatedHTTP2DOSMitigation).
func disconnect(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		w.Header().Set("Connection", "close")
	}
}

// warningCode is HTTP's code for a persistent warning without a meaning of its own.
const warningCode = 299

// Authenticate sends a 401 error to unauthenticated clients. It adds the user to the request's context, sends the
// warning about the credential, and applies impersonation.
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

// WhoIs returns the user of a request, or a 401 error. Because a browser sends a client certificate with the requests
// of any page, requests of other origins with a certificate get a 403 error.
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

// fromBrowser reports whether a browser sends the request. All browsers set these headers, and a page cannot change
// them for another origin without a preflight request. Other clients, such as Kubernetes' conformance tests, may send
// any Origin.
func fromBrowser(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// ruleLister is an Authorizer that can list its rules.
type ruleLister interface {
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

// Rules returns the rules of everything that the user may do in the namespace.
func (g *Guard) Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	if z, ok := g.Authorizer.(ruleLister); ok {
		return z.Rules(ctx, u, namespace)
	}
	if g.Authorizer != nil {
		return nil, errors.New("the authorizer cannot list its rules")
	}
	all := []string{"*"}
	return []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}, nil
}
