package scheduler

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/client"
	"monopod/apiserver/client/claim"
	"monopod/apiserver/follow"
)

const (
	// bindTime is how long a pod reserves its place on a node while its volumes are bound there (upstream:
	// VolumeBindingArgs.BindTimeoutSeconds).
	bindTime = 10 * time.Minute
	// bindRetry is when a pod that lost its reservation is scheduled again.
	bindRetry = time.Minute
)

// reservation is the place of a pod whose volumes are being bound on a node.
type reservation struct {
	uid   types.UID
	node  string
	until time.Time
}

// onClaim wakes the unscheduled pods that use the claim.
func (r *run) onClaim(old, new client.Object) []follow.Key {
	obj := new
	if obj == nil {
		obj = old
	}
	return r.claimants(func(p *corev1.Pod) bool {
		return p.Namespace == obj.GetNamespace() && slices.Contains(claim.AllOf(p), obj.GetName())
	})
}

// onStorage wakes the unscheduled pods that have claims.
func (r *run) onStorage(_, _ client.Object) []follow.Key {
	return r.claimants(func(*corev1.Pod) bool { return true })
}

func (r *run) claimants(which func(*corev1.Pod) bool) []follow.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []follow.Key
	for key, pod := range r.claiming {
		if which(pod) {
			keys = append(keys, key)
		}
	}
	return keys
}

// noteClaims records unscheduled pods with claims, before it reads the claims, so that it misses no change. The
// caller holds mu.
func (r *run) noteClaims(key follow.Key, pod *corev1.Pod) {
	if pod != nil && wanted(pod) && len(claim.AllOf(pod)) > 0 {
		r.claiming[key] = pod
		return
	}
	delete(r.claiming, key)
	delete(r.reserved, key)
}

// park makes a pod wait that fits no node now, and removes its reservation.
func (r *run) park(key follow.Key, pod *corev1.Pod, why string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.countWaiting()
	delete(r.reserved, key)
	r.cache.forget(pod.UID)
	r.waiting[key] = pod
	total := 0
	for _, s := range r.cache.nodes {
		if s.node != nil && s.node.DeletionTimestamp == nil {
			total++
		}
	}
	return explainAll(total, why)
}

// reserve reserves the pod's place on the node until its claims are bound there, and requests their binding.
func (r *run) reserve(ctx context.Context, key follow.Key, pod *corev1.Pod, vs *volumes, node string) (time.Duration, error) {
	r.mu.Lock()
	at, ok := r.reserved[key]
	if !ok {
		at = reservation{uid: pod.UID, node: node, until: r.deps.Clock.Now().Add(bindTime)}
		r.reserved[key] = at
	}
	r.mu.Unlock()
	left := at.until.Sub(r.deps.Clock.Now())
	if left <= 0 {
		r.dropPlace(key)
		r.giveUp(pod)
		return bindRetry, r.unschedulable(ctx, pod, "binding volumes: context deadline exceeded")
	}
	err := r.settle(ctx, vs, node)
	if err == nil {
		return left, nil
	}
	r.dropPlace(key)
	r.giveUp(pod)
	return 0, err // schedule again
}

func (r *run) dropPlace(key follow.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reserved, key)
}
