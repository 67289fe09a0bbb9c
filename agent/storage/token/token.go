// Package token keeps the service account tokens of a node's pods, in memory
// alone, and fetches new ones before they expire.
package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver/client"
)

const (
	// maxAge is when a token is replaced however long it lives, and maxJitter how
	// much sooner, so that those of one start do not come due at once (upstream:
	// pkg/kubelet/token).
	maxAge    = 24 * time.Hour
	maxJitter = 10 * time.Second
	// retryPause is between attempts to replace a token that still works.
	retryPause = time.Minute
)

// Keeper keeps tokens. It is safe for use by many goroutines.
type Keeper struct {
	client client.Client
	clock  clock.Clock

	mu   sync.Mutex // guards what follows
	pods map[types.UID]map[key]*kept
}

// key tells the tokens of one pod apart.
type key struct {
	audience string
	seconds  int64
}

// kept is a token and when to replace it.
type kept struct {
	token        string
	due, expires time.Time
}

// New makes a keeper of the tokens that c gives.
func New(c client.Client, clk clock.Clock) *Keeper {
	return &Keeper{client: c, clock: clk, pods: map[types.UID]map[key]*kept{}}
}

// Get is the token that p asks for: the one that is kept, or a new one when that
// is due. A token that cannot be replaced serves until it expires.
func (k *Keeper) Get(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error) {
	at := key{audience: p.Audience, seconds: 60 * 60}
	if p.ExpirationSeconds != nil {
		at.seconds = *p.ExpirationSeconds
	}
	old := k.read(pod.UID, at)
	now := k.clock.Now()
	if old != nil && now.Before(old.due) {
		return old.token, nil
	}
	next, err := k.fetch(ctx, pod, at)
	if err != nil {
		if old == nil || !now.Before(old.expires) {
			return "", err
		}
		next = &kept{token: old.token, due: now.Add(retryPause), expires: old.expires}
	}
	k.keep(pod.UID, at, next)
	return next.token, nil
}

// Due says whether a token of the pod should be replaced.
func (k *Keeper) Due(pod types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.pods[pod] {
		if !k.clock.Now().Before(t.due) {
			return true
		}
	}
	return false
}

// Forget drops the tokens of a pod that is gone.
func (k *Keeper) Forget(pod types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, pod)
}

func (k *Keeper) read(pod types.UID, at key) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[pod][at]
}

func (k *Keeper) keep(pod types.UID, at key, t *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pods[pod] == nil {
		k.pods[pod] = map[key]*kept{}
	}
	k.pods[pod][at] = t
}

// fetch asks the API for a token that holds as long as the pod is there.
func (k *Keeper) fetch(ctx context.Context, pod *corev1.Pod, at key) (*kept, error) {
	asked := k.clock.Now()
	spec := authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &at.seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}
	if at.audience != "" {
		spec.Audiences = []string{at.audience}
	}
	request, err := client.RequestToken(ctx, k.client, pod.Namespace, pod.Spec.ServiceAccountName, spec)
	if err != nil {
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	}
	if request.Status.Token == "" {
		return nil, fmt.Errorf("failed to fetch token: the answer for %s holds none", pod.Spec.ServiceAccountName)
	}
	return lifeOf(request, asked), nil
}

// lifeOf plans a token's replacement: when 80 % of its life is over, after a day
// at the latest. The clock that counts is this machine's own.
func lifeOf(r *authenticationv1.TokenRequest, asked time.Time) *kept {
	life := time.Hour
	if s := r.Spec.ExpirationSeconds; s != nil {
		life = time.Duration(*s) * time.Second
	}
	jitter := rand.N(maxJitter)
	return &kept{
		token: r.Status.Token, expires: asked.Add(life),
		due: asked.Add(min(life-life/5, maxAge) - jitter),
	}
}
