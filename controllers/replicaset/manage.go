package replicaset

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/follow"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// manage makes or deletes pods, at most 500, and returns the active ones, those that it
// made included: the status need not be written again when their events come.
func (r *run) manage(ctx context.Context, rs set, active []*corev1.Pod) ([]*corev1.Pod, error) {
	diff := desired(rs.ReplicaSet) - len(active)
	switch {
	case diff > 0:
		made, err := r.scaleUp(ctx, rs, min(diff, burst))
		return slices.Concat(active, made), err
	case diff < 0:
		return r.scaleDown(ctx, rs, active, min(-diff, burst))
	}
	return active, nil
}

// scaleUp creates n pods, slowly at first: when creation fails for a reason that
// all share, few requests are wasted.
func (r *run) scaleUp(ctx context.Context, rs set, n int) ([]*corev1.Pod, error) {
	r.deps.Log.Debug("creating pods", zap.String("namespace", rs.Namespace), zap.String("kind", r.kind.gvk.Kind), zap.String("name", rs.Name), zap.Int("count", n))
	r.expected.expectCreations(rs.UID, n)
	pods := make([]*corev1.Pod, n)
	made, err := owned.SlowStart(n, func(i int) error {
		var err error
		pods[i], err = r.control.Create(ctx, rs.stored, owned.NewPod(rs.stored, r.claims.Ref(rs.stored), &rs.Spec.Template))
		if owned.Ending(err) {
			return nil // it ends with its namespace; the expectation need not be met
		}
		return err
	})
	r.expected.created(rs.UID, n-made)
	return slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p == nil }), err
}

// scaleDown deletes the n pods that will be missed least.
func (r *run) scaleDown(ctx context.Context, rs set, active []*corev1.Pod, n int) ([]*corev1.Pod, error) {
	now := r.deps.Clock.Now()
	ranked := podstate.Rank(active, r.perNode(ctx, rs), now)
	victims := ranked[:n]
	r.observeAges(active, victims, now)
	keys := make([]string, len(victims))
	for i, p := range victims {
		keys[i] = podKey(p)
	}
	r.expected.expectDeletions(rs.UID, keys)
	errs := follow.Each(parallel, victims, func(p *corev1.Pod) error { return r.delete(ctx, rs, p) })
	return slices.Clone(ranked[n:]), errors.Join(errs...)
}

func (r *run) delete(ctx context.Context, rs set, pod *corev1.Pod) error {
	err := r.control.Delete(ctx, rs.stored, pod)
	if err != nil {
		r.expected.deleted(rs.UID, podKey(pod)) // no event will come
	}
	if owned.Gone(err) {
		return nil
	}
	return err
}

// perNode counts, by node, the active pods of rs and of the ReplicaSets that have
// the same owner.
func (r *run) perNode(ctx context.Context, rs set) map[string]int {
	count := map[string]int{}
	for _, sibling := range r.siblings(ctx, rs) {
		active, _ := split(r.pods.Of(sibling))
		for _, p := range active {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				count[p.Spec.NodeName]++
			}
		}
	}
	return count
}

// siblings are the sets with the same controller as rs, itself included.
func (r *run) siblings(ctx context.Context, rs set) []set {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return []set{rs}
	}
	all, err := r.kind.list(ctx, r.deps.Client, rs.Namespace)
	if err != nil {
		return []set{rs}
	}
	return slices.DeleteFunc(all, func(s set) bool {
		o := metav1.GetControllerOfNoCopy(s)
		return o == nil || o.UID != owner.UID
	})
}
