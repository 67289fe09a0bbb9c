package replicaset

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// manage makes or deletes pods, at most 500, and returns the active ones that it
// did not delete.
func (r *run) manage(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod) ([]*corev1.Pod, error) {
	diff := desired(rs) - len(active)
	switch {
	case diff > 0:
		return active, r.scaleUp(ctx, rs, min(diff, burst))
	case diff < 0:
		return r.scaleDown(ctx, rs, active, min(-diff, burst))
	}
	return active, nil
}

// scaleUp creates n pods, slowly at first: when creation fails for a reason that
// all share, few requests are wasted.
func (r *run) scaleUp(ctx context.Context, rs *appsv1.ReplicaSet, n int) error {
	r.deps.Log.Debug("creating pods", zap.String("namespace", rs.Namespace), zap.String("replicaset", rs.Name), zap.Int("count", n))
	r.expected.expectCreations(rs.UID, n)
	made, err := slowStart(n, func() error {
		err := r.create(ctx, rs)
		if err != nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // it ends with its namespace; the expectation need not be met
		}
		return err
	})
	r.expected.created(rs.UID, n-made)
	return err
}

// slowStart calls f n times in parallel batches of 1, 2, 4… A batch with an error
// is the last. It returns how many calls succeeded, and the batch's errors.
func slowStart(n int, f func() error) (succeeded int, err error) {
	for batch := 1; n > 0; batch *= 2 {
		size := min(batch, n)
		errs := follow.Each(parallel, make([]struct{}, size), func(struct{}) error { return f() })
		succeeded += size - len(errs)
		if len(errs) > 0 {
			return succeeded, errors.Join(errs...)
		}
		n -= size
	}
	return succeeded, nil
}

func (r *run) create(ctx context.Context, rs *appsv1.ReplicaSet) error {
	created, err := r.deps.Client.Create(ctx, r.podFor(rs))
	switch {
	case err == nil:
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", created.GetName())
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		r.events.Eventf(rs, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
	}
	return err
}

// podFor is a new pod of rs.
func (r *run) podFor(rs *appsv1.ReplicaSet) *corev1.Pod {
	t := rs.Spec.Template.DeepCopy()
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: rs.Name + "-", Namespace: rs.Namespace,
			Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{r.claims.Ref(rs)},
		},
		Spec: t.Spec,
	}
}

// scaleDown deletes the n pods that will be missed least.
func (r *run) scaleDown(ctx context.Context, rs *appsv1.ReplicaSet, active []*corev1.Pod, n int) ([]*corev1.Pod, error) {
	now := r.deps.Clock.Now()
	ranked := rank(active, r.perNode(ctx, rs), now)
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

func (r *run) delete(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	_, err := r.deps.Client.Delete(ctx, client.RefOf(pod), metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err == nil {
		r.events.Eventf(rs, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
		return nil
	}
	r.expected.deleted(rs.UID, podKey(pod)) // no event will come
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	r.events.Eventf(rs, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
	return err
}

// perNode counts, by node, the active pods of rs and of the ReplicaSets that have
// the same owner.
func (r *run) perNode(ctx context.Context, rs *appsv1.ReplicaSet) map[string]int {
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

// siblings are the ReplicaSets with the same controller as rs, itself included.
func (r *run) siblings(ctx context.Context, rs *appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return []*appsv1.ReplicaSet{rs}
	}
	all, err := client.List[*appsv1.ReplicaSet](ctx, r.deps.Client, client.Selector{Namespace: rs.Namespace})
	if err != nil {
		return []*appsv1.ReplicaSet{rs}
	}
	return slices.DeleteFunc(all, func(s *appsv1.ReplicaSet) bool {
		o := metav1.GetControllerOfNoCopy(s)
		return o == nil || o.UID != owner.UID
	})
}
