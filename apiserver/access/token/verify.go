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

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
)

const (
	// leeway is how long a token is good after what it is bound to began to go, and
	// after its own end (upstream: 60 s).
	leeway = time.Minute
	// maxSeen bounds the tokens whose signature is remembered.
	maxSeen = 512
)

// Keys under which a token's holder carries what it is bound to (upstream:
// authentication/serviceaccount).
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
	extraNodeUID  = "authentication.kubernetes.io/node-uid"
	extraID       = "authentication.kubernetes.io/credential-id"
)

// Authenticator knows the holders of tokens whose account, and whatever else they
// are bound to, is in c. A token from a time that the clock has gone back behind
// is good: only its end counts.
func (i *Issuer) Authenticator(c client.Client) auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		token := auth.Bearer(r)
		if strings.Count(token, ".") != 2 { // no JWT
			return auth.User{}, false
		}
		claims, ok := i.claims(token)
		if !ok || i.now().After(claims.Expiry.Time().Add(leeway)) || !i.alive(r.Context(), c, claims) {
			return auth.User{}, false
		}
		u := userOf(claims)
		return u, slices.ContainsFunc(auth.Audiences(r.Context()), func(a string) bool { return slices.Contains(u.Audiences, a) })
	})
}

// claims are what the token says, if it is one of ours. A signature is checked
// once: that takes longer than all the rest of a request.
func (i *Issuer) claims(token string) (*claims, bool) {
	key := sha256.Sum256([]byte(token))
	i.mu.Lock()
	known, ok := i.seen[key]
	i.mu.Unlock()
	if ok {
		return known, true
	}
	c, ok := i.verified(token)
	if !ok {
		return nil, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.seen) >= maxSeen {
		clear(i.seen)
	}
	i.seen[key] = c
	return c, true
}

func (i *Issuer) verified(token string) (*claims, bool) {
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
	return c, c.Issuer == issuer && c.Expiry != nil && c.Subject == auth.ServiceAccountName(k.Namespace, k.ServiceAccount.Name)
}

// alive says that what the token is bound to is still there.
func (i *Issuer) alive(ctx context.Context, c client.Client, t *claims) bool {
	k := &t.Kubernetes
	return is[*corev1.ServiceAccount](ctx, i, c, k.Namespace, &k.ServiceAccount) &&
		is[*corev1.Secret](ctx, i, c, k.Namespace, k.Secret) &&
		is[*corev1.Pod](ctx, i, c, k.Namespace, k.Pod) &&
		(k.Pod != nil || is[*corev1.Node](ctx, i, c, "", k.Node)) // a pod's node is told, not bound to
}

func is[T client.Object](ctx context.Context, i *Issuer, c client.Client, namespace string, want *ref) bool {
	if want == nil {
		return true
	}
	obj, err := client.Get[T](ctx, c, namespace, want.Name)
	if err != nil || string(obj.GetUID()) != want.UID {
		return false
	}
	going := obj.GetDeletionTimestamp()
	return going == nil || i.now().Before(going.Add(leeway))
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
