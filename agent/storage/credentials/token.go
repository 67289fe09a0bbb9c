package credentials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
)

const (
	// maxAge is the age at which a token is renewed even if it is valid for longer; a random time of at most
	// maxTokenJitter is subtracted, which spreads the renewals after a start (upstream: pkg/kubelet/token).
	maxAge         = 24 * time.Hour
	maxTokenJitter = 10 * time.Second
	// retryPause is the pause between attempts to renew a valid token.
	retryPause = time.Minute
)

// Tokens caches tokens. It is safe for concurrent use.
type Tokens struct {
	client client.Client
	clock  clock.Clock
	tokens Table[key, token]
}

// key identifies a token of a pod.
type key struct {
	audience string
	seconds  int64
}

// token is a token and the time when it expires.
type token struct {
	value   string
	expires time.Time
}

// NewTokens returns an empty cache of the tokens that c issues.
func NewTokens(c client.Client, clk clock.Clock) *Tokens {
	return &Tokens{client: c, clock: clk}
}

// Get returns the token for p from the cache, or a new one if it must be renewed. If the renewal fails, Get returns the
// old token until it expires.
func (k *Tokens) Get(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error) {
	value, _, err := k.Token(ctx, pod, p)
	return value, err
}

// Token is Get with the time when the token expires.
func (k *Tokens) Token(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (value string,
	expires time.Time, err error) {
	at := key{audience: p.Audience, seconds: 60 * 60}
	if p.ExpirationSeconds != nil {
		at.seconds = *p.ExpirationSeconds
	}
	old, due, ok := k.tokens.Get(pod.UID, at)
	now := k.clock.Now()
	if ok && now.Before(due) {
		return old.value, old.expires, nil
	}
	next, due, err := k.fetch(ctx, pod, at)
	if err != nil {
		if !ok || !now.Before(old.expires) {
			return "", expires, err
		}
		next, due = old, now.Add(retryPause)
	}
	k.tokens.Put(pod.UID, at, next, due)
	return next.value, next.expires, nil
}

// Due reports whether a token of the pod must be renewed.
func (k *Tokens) Due(pod types.UID) bool { return k.tokens.Due(pod, k.clock.Now()) }

// Forget drops the tokens of a removed pod.
func (k *Tokens) Forget(pod types.UID) { k.tokens.Forget(pod) }

// fetch requests a token that is bound to the pod.
func (k *Tokens) fetch(ctx context.Context, pod *corev1.Pod, at key) (t token, due time.Time, err error) {
	requested := k.clock.Now()
	spec := authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &at.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}
	if at.audience != "" {
		spec.Audiences = []string{at.audience}
	}
	request, err := client.RequestToken(ctx, k.client, pod.Namespace, pod.Spec.ServiceAccountName, spec)
	if err != nil {
		return t, due, fmt.Errorf("failed to fetch token: %w", err)
	}
	if request.Status.Token == "" {
		return t, due, fmt.Errorf("failed to fetch token: the response for service account %s contains no token",
			pod.Spec.ServiceAccountName)
	}
	// Renew it after 80 % of its lifetime, and at the latest after a day, by this machine's clock.
	life := time.Hour
	if s := request.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	t = token{value: request.Status.Token, expires: requested.Add(life)}
	return t, requested.Add(min(life-life/5, maxAge) - rand.N(maxTokenJitter)), nil
}
