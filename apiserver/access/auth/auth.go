// Package auth says who a request comes from and what they may do.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// User is who a request comes from.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string

	// Audiences are whom a token names that its holder may show it to; nil: it is
	// good for the API alone.
	Audiences []string
}

// Attributes are what a request wants to do, for an Authorizer.
type Attributes struct {
	User User
	Verb string // Kubernetes' own (get, list, watch, create, …); for paths the HTTP method in lower case
	// Of a resource; Group and Namespace may be empty.
	Namespace, Group, Version, Resource, Subresource, Name string
	// Fields are what a list, watch or deletecollection asks of its objects' fields.
	Fields fields.Requirements
	// Path is set instead for what is no resource.
	Path string
}

// Authorizer decides what a user may do. A refusal's reason is for the client to
// read; the zero reason is fine.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (allowed bool, reason string, err error)
}

// Names that upstream gives a meaning (k8s.io/apiserver's package user).
const (
	Masters         = "system:masters" // may do everything
	Nodes           = "system:nodes"   // the agents, each as NodePrefix and its node's name
	NodePrefix      = "system:node:"
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"
	Viewers         = "system:monopod:viewers" // ours
	Anonymous       = "system:anonymous"
)

// Admin is the one who owns the data folder.
var Admin = User{Name: "kubernetes-admin", Groups: []string{Masters, Authenticated}}

// Viewer may see what ClusterRole view lets see; group Viewers is bound to it.
var Viewer = User{Name: "monopod-viewer", Groups: []string{Viewers, Authenticated}}

// Authenticator finds out who a request comes from; false when it cannot tell.
type Authenticator interface {
	Authenticate(r *http.Request) (User, bool)
}

// Func makes an Authenticator of a function.
type Func func(r *http.Request) (User, bool)

// Authenticate implements Authenticator.
func (f Func) Authenticate(r *http.Request) (User, bool) { return f(r) }

// Any asks each of them in turn.
func Any(all ...Authenticator) Authenticator {
	return Func(func(r *http.Request) (User, bool) {
		for _, a := range all {
			if u, ok := a.Authenticate(r); ok {
				return u, true
			}
		}
		return User{}, false
	})
}

// Token knows the holder of token, sent as a bearer token. Comparing takes the same
// time for every guess.
func Token(token string, user User) Authenticator {
	want := sha256.Sum256([]byte(token))
	return Func(func(r *http.Request) (User, bool) {
		got := sha256.Sum256([]byte(Bearer(r)))
		return user, token != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
	})
}

// Bearer is the request's bearer token; empty without one.
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Certificates knows the holder of a client certificate that the TLS handshake
// verified: the common name is the user, the organizations are the groups.
func Certificates() Authenticator {
	return Func(func(r *http.Request) (User, bool) {
		if !HasCertificate(r) {
			return User{}, false
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		return User{Name: subject.CommonName, Groups: append(slices.Clip(subject.Organization), Authenticated)}, subject.CommonName != ""
	})
}

// HasCertificate says that the client proved itself by a certificate, whatever else
// it sends.
func HasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

type listenerKey struct{}

// TrustListener marks a connection's context: who can reach its listener is the
// admin. For the Unix socket, which only its owner can open.
func TrustListener(ctx context.Context) context.Context {
	return context.WithValue(ctx, listenerKey{}, true)
}

// Listener knows those who came through a trusted listener.
func Listener() Authenticator {
	return Func(func(r *http.Request) (User, bool) {
		return Admin, r.Context().Value(listenerKey{}) != nil
	})
}

// Audience is who this API is to those who issue tokens, and who issues them here.
const Audience = "https://kubernetes.default.svc.cluster.local"

type audienceKey struct{}

// ForToken is a context for an Authenticator that is asked about a token alone,
// for one of the audiences: nothing of how the question came in is in it. It ends
// with ctx, or by cancel.
func ForToken(ctx context.Context, audiences []string) (_ context.Context, cancel func()) {
	alone, end := context.WithCancel(context.WithValue(context.Background(), audienceKey{}, audiences))
	stop := context.AfterFunc(ctx, end)
	return alone, func() { stop(); end() }
}

// Audiences are those that a token must be for one of.
func Audiences(ctx context.Context) []string {
	if asked, ok := ctx.Value(audienceKey{}).([]string); ok {
		return asked
	}
	return []string{Audience}
}

type userKey struct{}

// WithUser attaches who a request comes from.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// Known is who a request comes from; false when nobody said: then it is one of
// this process' own parts, or nobody known.
func Known(ctx context.Context) (User, bool) {
	u, ok := ctx.Value(userKey{}).(User)
	return u, ok
}

// UserOf is who a request comes from; anonymous when nobody said.
func UserOf(ctx context.Context) User {
	if u, ok := Known(ctx); ok {
		return u
	}
	return User{Name: Anonymous, Groups: []string{Unauthenticated}}
}
