package replicaset

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/controllers/podstate"
)

// report writes the status if it has changed. It returns the time until the next ready pod becomes available.
func (r *run) report(ctx context.Context, rs set, active, terminating []*corev1.Pod,
	manageErr error) (time.Duration, error) {
	now := r.deps.Clock.Now()
	next := statusOf(rs.ReplicaSet, active, terminating, manageErr, now)
	if !r.kind.terminating {
		next.TerminatingReplicas = nil
	}
	if !equality.Semantic.DeepEqual(next, rs.Status) {
		err := r.kind.setStatus(ctx, r.deps.Client, rs, func(cur *appsv1.ReplicaSetStatus) {
			next.ObservedGeneration = max(next.ObservedGeneration, cur.ObservedGeneration)
			*cur = next
		})
		if err != nil && manageErr == nil {
			return 0, err
		}
	}
	return podstate.NextAvailable(active, rs.Spec.MinReadySeconds, now), manageErr
}

// statusOf computes the status; it keeps conditions other than ReplicaFailure.
func statusOf(rs *appsv1.ReplicaSet, active, terminating []*corev1.Pod, manageErr error,
	now time.Time) appsv1.ReplicaSetStatus {
	status := *rs.Status.DeepCopy()
	status.Replicas = int32(len(active))
	status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0
	status.TerminatingReplicas = new(int32(len(terminating)))
	status.ObservedGeneration = rs.Generation
	template := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	for _, p := range active {
		if template.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		wait, ready := podstate.AvailableIn(p, rs.Spec.MinReadySeconds, now)
		if ready {
			status.ReadyReplicas++
		}
		if ready && wait <= 0 {
			status.AvailableReplicas++
		}
	}
	status.Conditions = failureCondition(status.Conditions, desired(rs)-len(active), manageErr, now)
	return status
}

// failureCondition sets ReplicaFailure for err, unless it exists with the same reason, and removes it if err is nil.
func failureCondition(conditions []appsv1.ReplicaSetCondition, diff int, err error,
	now time.Time) []appsv1.ReplicaSetCondition {
	i := slices.IndexFunc(conditions, isFailure)
	if err == nil {
		return slices.DeleteFunc(conditions, isFailure)
	}
	reason := "FailedCreate"
	if diff < 0 {
		reason = "FailedDelete"
	}
	if i >= 0 && conditions[i].Reason == reason {
		return conditions
	}
	return append(slices.DeleteFunc(conditions, isFailure), appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		Reason: reason, Message: err.Error(), LastTransitionTime: metav1.NewTime(now),
	})
}

func isFailure(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
