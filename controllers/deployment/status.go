package deployment

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the condition Progressing, the same as upstream's.
const (
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
	reasonFound       = "FoundNewReplicaSet"
	reasonCreated     = "NewReplicaSetCreated"
	reasonCreateError = "ReplicaSetCreateError"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonAvailable   = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
)

// summarize computes the status: counts of the ReplicaSets, the condition Available and, if progress is expected,
// Progressing.
func (ro *rollout) summarize(progress bool, now time.Time) {
	all, s := ro.all(), &ro.d.Status
	s.ObservedGeneration = ro.stored.Generation
	s.Replicas = sum(all, func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas })
	s.ReadyReplicas = sum(all, func(rs *appsv1.ReplicaSet) int32 { return rs.Status.ReadyReplicas })
	s.AvailableReplicas = sum(all, func(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas })
	s.UnavailableReplicas = max(0, sum(all, size)-s.AvailableReplicas)
	s.UpdatedReplicas = 0
	if ro.new != nil {
		s.UpdatedReplicas = ro.new.Status.Replicas
	}
	s.TerminatingReplicas = terminating(all)
	if s.AvailableReplicas >= fewest(ro.d) {
		setCondition(s, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.", now))
	} else {
		setCondition(s, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.", now))
	}
	if !hasDeadline(ro.d) {
		removeCondition(s, appsv1.DeploymentProgressing)
	} else if progress {
		ro.progress(now)
	}
	if failure := ro.failure(); failure != nil {
		setCondition(s, *failure)
	} else {
		removeCondition(s, appsv1.DeploymentReplicaFailure)
	}
}

// terminating returns the number of terminating pods; nil if a ReplicaSet that has been synced does not report it.
func terminating(sets []*appsv1.ReplicaSet) *int32 {
	total := int32(0)
	for _, rs := range sets {
		switch {
		case rs.Status.TerminatingReplicas != nil:
			total += *rs.Status.TerminatingReplicas
		case rs.Status.ObservedGeneration != 0:
			return nil
		}
	}
	return &total
}

// progress sets the condition Progressing. A rollout that was complete stays complete: pods that fail later do not
// make it time out.
func (ro *rollout) progress(now time.Time) {
	s, was := &ro.d.Status, conditionOf(&ro.d.Status, appsv1.DeploymentProgressing)
	if s.Replicas == s.UpdatedReplicas && was != nil && was.Reason == reasonAvailable {
		return
	}
	what := fmt.Sprintf("Deployment %q", ro.d.Name)
	if ro.new != nil {
		what = fmt.Sprintf("ReplicaSet %q", ro.new.Name)
	}
	switch {
	case complete(ro.d, s):
		setCondition(s,
			condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable, what+" has successfully progressed.",
				now))
	case progressed(&ro.stored.Status, s):
		next := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, what+" is progressing.", now)
		if was != nil && was.Status == corev1.ConditionTrue {
			next.LastTransitionTime = was.LastTransitionTime
		}
		removeCondition(s, appsv1.DeploymentProgressing) // sets lastUpdateTime even if nothing else changes
		setCondition(s, next)
	case was != nil && was.Reason != reasonAvailable && now.Sub(was.LastUpdateTime.Time) >= deadline(ro.d):
		setCondition(s,
			condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.",
				now))
	}
}

// complete reports whether all replicas have the new template and are available, and no old replica is left.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	n := desired(d)
	return s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n && s.ObservedGeneration >= d.Generation
}

// progressed reports whether there are more updated, ready or available replicas, or fewer old ones.
func progressed(was, is *appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas ||
		is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

// failure returns the condition for a ReplicaSet that cannot create or delete pods; the new ReplicaSet takes
// precedence.
func (ro *rollout) failure() *appsv1.DeploymentCondition {
	all := ro.all()
	slices.Reverse(all)
	for _, rs := range all {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				return &appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastUpdateTime: c.LastTransitionTime, LastTransitionTime: c.LastTransitionTime,
				}
			}
		}
	}
	return nil
}

// notePause sets the condition Progressing when a Deployment is paused or resumed, so that the time in between does
// not count towards the deadline. A Deployment that has timed out stays timed out.
func (ro *rollout) notePause(now time.Time) {
	was := conditionOf(&ro.d.Status, appsv1.DeploymentProgressing)
	if was != nil && was.Reason == reasonTimedOut {
		return
	}
	switch paused := was != nil && was.Reason == reasonPaused; {
	case ro.d.Spec.Paused && !paused:
		ro.noteProgress(corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now)
	case !ro.d.Spec.Paused && paused:
		ro.noteProgress(corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now)
	}
}

// noteProgress sets the condition Progressing of a Deployment that has a progress deadline.
func (ro *rollout) noteProgress(status corev1.ConditionStatus, reason, text string, now time.Time) {
	if hasDeadline(ro.d) {
		setCondition(&ro.d.Status, condition(appsv1.DeploymentProgressing, status, reason, text, now))
	}
}

// untilDeadline returns how long until a rollout must have made progress; 0 if it has no deadline.
func untilDeadline(d *appsv1.Deployment, now time.Time) time.Duration {
	c := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || c == nil || d.Spec.Paused || d.DeletionTimestamp != nil || c.Reason == reasonAvailable ||
		c.Reason == reasonTimedOut || complete(d, &d.Status) {
		return 0
	}
	return max(c.LastUpdateTime.Add(deadline(d)).Sub(now), time.Second)
}

// hasDeadline reports whether the Deployment has a progress deadline; math.MaxInt32 means none.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func deadline(d *appsv1.Deployment) time.Duration {
	return time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second
}

func condition(typ appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string,
	now time.Time) appsv1.DeploymentCondition {
	at := metav1.NewTime(now)
	return appsv1.DeploymentCondition{Type: typ, Status: status, Reason: reason, Message: message, LastUpdateTime: at,
		LastTransitionTime: at}
}

// conditionOf returns the condition of a type, or nil.
func conditionOf(s *appsv1.DeploymentStatus, typ appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for _, c := range s.Conditions {
		if c.Type == typ {
			return &c
		}
	}
	return nil
}

// setCondition adds or replaces a condition, unless it exists with the same status and reason. The transition time
// changes only with the status.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if was := conditionOf(s, c.Type); was != nil && was.Status == c.Status {
		if was.Reason == c.Reason {
			return
		}
		c.LastTransitionTime = was.LastTransitionTime
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, typ appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == typ })
}
