package statefulset

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// status counts the pods after the step. When a rolling update has replaced all pods and they are ready, its revision
// becomes the current one.
func (st *syncState) status() appsv1.StatefulSetStatus {
	s := appsv1.StatefulSetStatus{
		ObservedGeneration: st.set.Generation, CurrentRevision: st.current.Name, UpdateRevision: st.update.Name,
		CollisionCount: st.collisions, Conditions: st.set.Status.Conditions,
	}
	if s.CollisionCount == nil {
		s.CollisionCount = new(int32(0)) // as in upstream
	}
	for _, rep := range slices.Concat(st.replicas, st.condemned) {
		p := rep.pod
		if p == nil {
			continue
		}
		s.Replicas++
		if p.Status.Phase == corev1.PodRunning && podstate.Ready(p) {
			s.ReadyReplicas++
			if wait, ready := podstate.AvailableIn(p, st.set.Spec.MinReadySeconds, st.now); ready && wait <= 0 {
				s.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if revisionOf(p) == st.current.Name {
			s.CurrentReplicas++
		}
		if revisionOf(p) == st.update.Name {
			s.UpdatedReplicas++
		}
	}
	n := int32(desired(st.set))
	if st.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && s.UpdatedReplicas == n &&
		s.ReadyReplicas == n && s.Replicas == n {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
	return s
}

// report writes the status if it has changed.
func (r *run) report(ctx context.Context, st *syncState) error {
	next := st.status()
	if equality.Semantic.DeepEqual(next, st.set.Status) {
		return nil
	}
	return owned.UpdateStatus(ctx, r.deps.Client, st.set, func(cur *appsv1.StatefulSet) {
		next.ObservedGeneration = max(next.ObservedGeneration, cur.Status.ObservedGeneration)
		cur.Status = next
	})
}
