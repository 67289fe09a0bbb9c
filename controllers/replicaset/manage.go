package replicaset

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// manage creates or deletes at most one burst of pods. It returns the active pods including the created ones, so that
// the status does not have to be written again when their events arrive.
func (r *run) manage(ctx context.Context, rs set, active []*corev1.Pod) ([]*corev1.Pod, error) {
	diff := desired(rs.ReplicaSet) - len(active)
	switch {
	case diff > 0:
		first := len(active) // creations before any success is awaited
		if slices.ContainsFunc(rs.Status.Conditions, isFailure) {
			first = 1
		}
		pods := make([]*corev1.Pod, min(diff, burst))
		r.deps.Log.Debug("creating pods", zap.String("namespace", rs.Namespace), zap.String("kind", r.kind.gvk.Kind),
			zap.String("name", rs.Name), zap.Int("count", len(pods)))
		// The batches grow: if all creations fail for the same reason, few requests are wasted.
		_, err := owned.SlowStart(first, len(pods), func(i int) error {
			var err error
			pods[i], err = r.control.Create(ctx, rs.stored, owned.NewPod(rs.stored, r.adopter.Ref(rs.stored), &rs.Spec.Template))
			if owned.NamespaceTerminating(err) {
				return nil // the namespace is terminating
			}
			return err
		})
		made := slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p == nil })
		return slices.Concat(active, made), err
	case diff < 0:
		return r.scaleDown(ctx, rs, active, min(-diff, burst))
	}
	return active, nil
}

// scaleDown deletes the n pods that rank first for deletion (podstate.Rank), and returns the remaining ones.
func (r *run) scaleDown(ctx context.Context, rs set, active []*corev1.Pod, n int) ([]*corev1.Pod, error) {
	now := r.deps.Clock.Now()
	ranked := podstate.Rank(active, r.perNode(ctx, rs), now)
	victims := ranked[:n]
	r.observeAges(active, victims, now)
	left := slices.Clone(ranked[n:])
	var mu sync.Mutex // guards left
	errs := follow.Each(parallel, victims, func(p *corev1.Pod) error {
		err := r.control.Delete(ctx, rs.stored, p)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, p)
		}
		return err
	})
	return left, errors.Join(errs...)
}

// perNode returns the number of active pods on each node, of rs and of the ReplicaSets with the same controller.
func (r *run) perNode(ctx context.Context, rs set) map[string]int {
	siblings := []set{rs}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		if all, err := r.kind.list(ctx, r.deps.Client, rs.Namespace); err == nil {
			siblings = slices.DeleteFunc(all, func(s set) bool {
				o := metav1.GetControllerOfNoCopy(s)
				return o == nil || o.UID != owner.UID
			})
		}
	}
	count := map[string]int{}
	for _, sibling := range siblings {
		active, _ := split(r.pods.Of(sibling))
		for _, p := range active {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				count[p.Spec.NodeName]++
			}
		}
	}
	return count
}
