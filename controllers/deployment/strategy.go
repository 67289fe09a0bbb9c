package deployment

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/podstate"
)

// roll makes one step of a rolling update: it scales the new ReplicaSet up as far as the surge allows, and the old
// ones down as far as maxUnavailable allows.
func (r *run) roll(ctx context.Context, ro *rollout) error {
	ro.rolls = true
	if ro.new == nil {
		if err := r.create(ctx, ro); err != nil || ro.new == nil {
			return err
		}
	}
	if err := r.resize(ctx, ro, ro.new, grown(ro.d, ro.new, ro.old)); err != nil {
		return err
	}
	old := active(ro.old)
	if err := r.resizeAll(ctx, ro, old, shrunk(ro.d, old, ro.new)); err != nil {
		return err
	}
	return r.cleanUp(ctx, ro)
}

// recreate makes one step of Recreate: it creates no pods of the new ReplicaSet before all old pods are gone.
func (r *run) recreate(ctx context.Context, ro *rollout) error {
	ro.rolls = true
	old := active(ro.old)
	if err := r.resizeAll(ctx, ro, old, make([]int32, len(old))); err != nil || len(old) > 0 {
		return err
	}
	if ro.new == nil || size(ro.new) != desired(ro.d) {
		gone, err := r.oldPodsGone(ctx, ro)
		if err != nil || !gone {
			return err
		}
	}
	if ro.new == nil {
		if err := r.create(ctx, ro); err != nil || ro.new == nil {
			return err
		}
	}
	if err := r.resize(ctx, ro, ro.new, desired(ro.d)); err != nil {
		return err
	}
	return r.cleanUp(ctx, ro)
}

// oldPodsGone reports whether no pod of an old ReplicaSet runs or can still be created. When a pod ends, the status
// of its ReplicaSet changes, which wakes the Deployment.
func (r *run) oldPodsGone(ctx context.Context, ro *rollout) (bool, error) {
	if unreported(ro.old) {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ro.d.Spec.Selector)
	if err != nil {
		return false, err
	}
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client, client.Selector{Namespace: ro.d.Namespace, Labels: selector})
	return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		return !podstate.Finished(p) && slices.ContainsFunc(ro.old,
			func(rs *appsv1.ReplicaSet) bool { return metav1.IsControlledBy(p, rs) })
	}), err
}

// rescale scales without a rollout: the Deployment is paused, or its replicas changed during a rollout.
func (r *run) rescale(ctx context.Context, ro *rollout) error {
	d, active := ro.d, ro.active()
	if most(d) > sum(active, size) && unreported(ro.all()) {
		return nil // the ReplicaSet's status wakes the Deployment
	}
	switch {
	case len(active) == 0 && len(ro.all()) == 0:
		return nil
	case len(active) <= 1:
		one := ro.new
		if len(active) == 1 {
			one = active[0]
		} else if one == nil {
			one = ro.old[len(ro.old)-1]
		}
		n := desired(d)
		if n > size(one) { // the others may still have pods to delete
			n = max(size(one), min(n, most(d)-sum(ro.all(), present)+present(one)))
		}
		return r.resize(ctx, ro, one, n)
	case saturated(d, ro.new):
		old := slices.DeleteFunc(active, func(rs *appsv1.ReplicaSet) bool { return rs == ro.new })
		return r.resizeAll(ctx, ro, old, make([]int32, len(old)))
	case d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		return r.resizeAll(ctx, ro, active, proportional(d, active))
	}
	return nil
}

func (r *run) resizeAll(ctx context.Context, ro *rollout, sets []*appsv1.ReplicaSet, sizes []int32) error {
	for i, rs := range sets {
		if err := r.resize(ctx, ro, rs, sizes[i]); err != nil {
			return err
		}
	}
	return nil
}

// resize sets a ReplicaSet's replicas and records what they were computed from. If the ReplicaSet's spec changed
// since then, it returns a conflict.
func (r *run) resize(ctx context.Context, ro *rollout, rs *appsv1.ReplicaSet, n int32) error {
	before := size(rs)
	if n == before && !rescaled(ro.d, []*appsv1.ReplicaSet{rs}) {
		return nil
	}
	next, err := r.change(ctx, rs, func(cur *appsv1.ReplicaSet) {
		cur.Spec.Replicas = &n
		noteScale(ro.d, cur)
	})
	if err != nil {
		return err
	}
	ro.put(next)
	if n != before {
		how := "up"
		if n < before {
			how = "down"
		}
		r.eventf(ro, false, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", how, rs.Name, before, n)
	}
	return nil
}

var errChanged = errors.New("object has changed since it was read")

// change updates a ReplicaSet; it conflicts if the spec differs from that of rs.
func (r *run) change(ctx context.Context, rs *appsv1.ReplicaSet,
	change func(*appsv1.ReplicaSet)) (*appsv1.ReplicaSet, error) {
	return client.Update(ctx, r.deps.Client, rs, "", func(cur *appsv1.ReplicaSet) error {
		if cur.UID != rs.UID || cur.Generation != rs.Generation {
			return apierrors.NewConflict(client.ReplicaSets.GroupResource(), rs.Name, errChanged)
		}
		change(cur)
		return nil
	})
}

// cleanUp deletes old ReplicaSets without pods beyond revisionHistoryLimit, lowest revision first. It does so only
// while the rollout is complete or paused.
func (r *run) cleanUp(ctx context.Context, ro *rollout) error {
	limit := ro.d.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 || !ro.d.Spec.Paused && !complete(ro.d, &ro.stored.Status) {
		return nil
	}
	old := slices.DeleteFunc(slices.Clone(ro.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortFunc(old, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(revisionOf(a), revisionOf(b)), compareAges(a, b))
	})
	for _, rs := range old[:max(0, len(old)-int(*limit))] {
		if present(rs) != 0 || unreported([]*appsv1.ReplicaSet{rs}) {
			continue
		}
		r.deps.Log.Debug("deleting an old ReplicaSet", zap.String("namespace", rs.Namespace),
			zap.String("deployment", ro.d.Name), zap.String("replicaset", rs.Name))
		_, err := r.deps.Client.Delete(ctx, client.RefOf(rs),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(rs.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
