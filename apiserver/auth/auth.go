// Package auth authenticates users and defines what an Authorizer decides on.
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

// User is the user that sends a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string

	// Audiences are the audiences of the user's token; nil: only the API.
	Audiences []string

	// Warning about the credential is sent to the client. Notes about it are annotations of the audit log.
	Warning string
	Notes   map[string]string
}

// Attributes describe a request for an Authorizer.
type Attributes struct {
	User User
	// Verb is get, list, watch, create and so on, or for a non-resource path the HTTP method in lower case.
	Verb string
	// The resource; Group and Namespace may be empty.
	Namespace, Group, Version, Resource, Subresource, Name string
	// Fields is the field selector of a list, watch or deletecollection.
	Fields fields.Requirements
	// Path is set for non-resource paths, instead of the resource.
	Path string
}

// Authorizer decides what a user may do. The reason of a refusal is shown to the client and may be empty.
type Authorizer interface {
	Authorize(ctx context.Context, a Attributes) (allowed bool, reason string, err error)
}

// User and group names that Kubernetes defines (k8s.io/apiserver/pkg/authentication/user).
const (
	Masters         = "system:masters" // may do everything
	Nodes           = "system:nodes"   // the agents; their users are NodePrefix and the node's name
	NodePrefix      = "system:node:"
	Authenticated   = "system:authenticated"
	Unauthenticated = "system:unauthenticated"
	Viewers         = "system:monopod:viewers" // Monopod's own group
	Anonymous       = "system:anonymous"
)

// Admin is the user who owns the data folder.
var Admin = User{Name: "kubernetes-admin", Groups: []string{Masters, Authenticated}}

// FrontProxy is the user in the client certificate that identifies this server to aggregated API servers. It has no
// permissions in this server.
var FrontProxy = User{Name: "front-proxy-client", Groups: []string{"monopod:front-proxy"}}

// KubeletClient is the user in the client certificate with which this server calls kubelets of other machines. The name
// is kubeadm's. The user has no permissions in the API, and all of them at a kubelet's own port, which a node that asks
// for a review of them learns, too.
var KubeletClient = User{Name: "kube-apiserver-kubelet-client", Groups: []string{"monopod:apiserver"}}

// Viewer is the user of view.token; the ClusterRole system:monopod:viewer is bound to group Viewers.
var Viewer = User{Name: "monopod-viewer", Groups: []string{Viewers, Authenticated}}

// Authenticator returns the user of a request. It returns false if it does not recognize one.
type Authenticator interface {
	Authenticate(r *http.Request) (User, bool)
}

// Func makes a function an Authenticator.
type Func func(r *http.Request) (User, bool)

// Authenticate implements Authenticator.
func (f Func) Authenticate(r *http.Request) (User, bool) { return f(r) }

// Any returns an Authenticator that tries each of all in order.
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

// Token authenticates user by a bearer token. The comparison takes constant time.
func Token(token string, user User) Authenticator {
	want := sha256.Sum256([]byte(token))
	return Func(func(r *http.Request) (User, bool) {
		got := sha256.Sum256([]byte(Bearer(r)))
		return user, token != "" && subtle.ConstantTimeCompare(got[:], want[:]) == 1
	})
}

// Bearer returns the request's bearer token, or an empty string if it has none.
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Certificates authenticates by the client certificate that the TLS handshake verified: the common name is the
// user, the organizations are the groups.
func Certificates() Authenticator {
	return Func(func(r *http.Request) (User, bool) {
		if !HasCertificate(r) {
			return User{}, false
		}
		subject := r.TLS.VerifiedChains[0][0].Subject
		return User{Name: subject.CommonName, Groups: append(slices.Clip(subject.Organization), Authenticated)},
			subject.CommonName != ""
	})
}

// HasCertificate reports whether the client has a verified certificate.
func HasCertificate(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

type listenerKey struct{}

// TrustListener marks a connection's context as the admin's. Use it only for the Unix socket, which only its owner can
// open.
func TrustListener(ctx context.Context) context.Context {
	return context.WithValue(ctx, listenerKey{}, true)
}

// Listener authenticates requests from a trusted listener.
func Listener() Authenticator {
	return Func(func(r *http.Request) (User, bool) {
		return Admin, r.Context().Value(listenerKey{}) != nil
	})
}

// Audience is the audience and the issuer of this API's tokens.
const Audience = "https://kubernetes.default.svc.cluster.local"

type audienceKey struct{}

// ForToken returns a context to authenticate a token for one of the audiences. It has no values of ctx, the context of
// the request that contains the token. It ends with ctx, or by cancel.
func ForToken(ctx context.Context, audiences []string) (_ context.Context, cancel func()) {
	alone, end := context.WithCancel(context.WithValue(context.Background(), audienceKey{}, audiences))
	stop := context.AfterFunc(ctx, end)
	return alone, func() { stop(); end() }
}

// Audiences returns the audiences of which a token must have one.
func Audiences(ctx context.Context) []string {
	if audiences, ok := ctx.Value(audienceKey{}).([]string); ok {
		return audiences
	}
	return []string{Audience}
}

type userKey struct{}

// WithUser returns ctx with the user of a request.
func WithUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// Known returns the user of a request. It returns false if the context has none, because the request comes from this
// process or is not authenticated.
func Known(ctx context.Context) (User, bool) {
	u, ok := ctx.Value(userKey{}).(User)
	return u, ok
}

// UserOf returns the user of a request, or the anonymous user.
func UserOf(ctx context.Context) User {
	if u, ok := Known(ctx); ok {
		return u
	}
	return User{Name: Anonymous, Groups: []string{Unauthenticated}}
}
