package token

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

const (
	// leeway is how long a token stays valid after it expires, and after the deletion of its bound object begins
	// (upstream: 60 s).
	leeway = time.Minute
	// maxVerified is the maximum number of tokens whose claims are cached.
	maxVerified = 512
)

// Extra fields of the user that contain the objects that a token is bound to (upstream:
// authentication/serviceaccount).
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
	extraNodeUID  = "authentication.kubernetes.io/node-uid"
	extraID       = "authentication.kubernetes.io/credential-id"
)

// Authenticator returns an Authenticator for tokens whose account and bound object exist in c. It ignores the claims
// iat and nbf: after the clock has gone back, a token from the future is valid.
func (i *Issuer) Authenticator(c client.Client) auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		token := auth.Bearer(r)
		if strings.Count(token, ".") != 2 { // not a JWT
			return auth.User{}, false
		}
		claims, ok := i.claims(token)
		if !ok || i.now().After(claims.Expiry.Time().Add(leeway)) || !i.bound(r.Context(), c, claims) {
			return auth.User{}, false
		}
		u := userOf(claims)
		if !slices.ContainsFunc(auth.Audiences(r.Context()), func(a string) bool { return slices.Contains(u.Audiences, a) }) {
			return u, false
		}
		ok = i.legacy(r.Context(), c, claims, token, &u)
		return u, ok
	})
}

// claims returns the claims of a token that this issuer signed. It caches them, because to verify a signature takes
// longer than the rest of a request.
func (i *Issuer) claims(token string) (*claims, bool) {
	key := sha256.Sum256([]byte(token))
	i.mu.Lock()
	cached, ok := i.verified[key]
	i.mu.Unlock()
	if ok {
		return cached, true
	}
	c, ok := i.verify(token)
	if !ok {
		return nil, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.verified) >= maxVerified {
		clear(i.verified)
	}
	i.verified[key] = c
	return c, true
}

func (i *Issuer) verify(token string) (*claims, bool) {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{algorithm})
	if err != nil {
		return nil, false
	}
	s, err := i.signer()
	if err != nil {
		return nil, false
	}
	c := &claims{}
	if err := parsed.Claims(s.public.Key, c); err != nil {
		return nil, false
	}
	k := c.Kubernetes
	return c, c.Issuer == issuer && c.Expiry != nil &&
		c.Subject == auth.ServiceAccountName(k.Namespace, k.ServiceAccount.Name)
}

// bound reports whether the objects that the token is bound to exist.
func (i *Issuer) bound(ctx context.Context, c client.Client, t *claims) bool {
	k := &t.Kubernetes
	return exists[*corev1.ServiceAccount](ctx, i, c, k.Namespace, &k.ServiceAccount) &&
		exists[*corev1.Secret](ctx, i, c, k.Namespace, k.Secret) &&
		exists[*corev1.Pod](ctx, i, c, k.Namespace, k.Pod) &&
		// The node of a pod is only recorded: the token is not bound to it.
		(k.Pod != nil || exists[*corev1.Node](ctx, i, c, "", k.Node))
}

func exists[T client.Object](ctx context.Context, i *Issuer, c client.Client, namespace string, want *ref) bool {
	if want == nil {
		return true
	}
	obj, err := client.Get[T](ctx, c, namespace, want.Name)
	if err != nil || string(obj.GetUID()) != want.UID {
		return false
	}
	deleted := obj.GetDeletionTimestamp()
	return deleted == nil || i.now().Before(deleted.Add(leeway))
}

func userOf(c *claims) auth.User {
	k := &c.Kubernetes
	u := auth.User{
		Name: c.Subject, UID: k.ServiceAccount.UID, Audiences: c.Audience,
		Groups: append(auth.ServiceAccountGroups(k.Namespace), auth.Authenticated),
		Extra:  map[string][]string{extraID: {"JTI=" + c.ID}},
	}
	if k.Pod != nil {
		u.Extra[extraPodName], u.Extra[extraPodUID] = []string{k.Pod.Name}, []string{k.Pod.UID}
	}
	if k.Node != nil {
		u.Extra[extraNodeName], u.Extra[extraNodeUID] = []string{k.Node.Name}, []string{k.Node.UID}
	}
	return u
}
