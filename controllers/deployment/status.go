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

// Reasons of the condition Progressing, upstream's.
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

// summarize computes the status of the sync: the counts of its ReplicaSets, whether
// enough replicas are available, and, if progress is expected, whether there is any.
func (ro *rollout) summarize(progress bool, now time.Time) {
	ro.count(now)
	if !hasDeadline(ro.d) {
		removeCondition(&ro.d.Status, appsv1.DeploymentProgressing)
	} else if progress {
		ro.progress(now)
	}
	if failure := ro.failure(); failure != nil {
		setCondition(&ro.d.Status, *failure)
	} else {
		removeCondition(&ro.d.Status, appsv1.DeploymentReplicaFailure)
	}
}

func (ro *rollout) count(now time.Time) {
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
		setCondition(s, condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.", now))
	} else {
		setCondition(s, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now))
	}
}

// terminating is how many pods are being deleted; nil if a ReplicaSet that has been
// synced does not say.
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

// progress sets the condition Progressing. A rollout that was complete before stays so:
// pods that fail later do not make it time out.
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
		setCondition(s, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonAvailable, what+" has successfully progressed.", now))
	case progressed(&ro.stored.Status, s):
		next := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonUpdated, what+" is progressing.", now)
		if was != nil && was.Status == corev1.ConditionTrue {
			next.LastTransitionTime = was.LastTransitionTime
		}
		removeCondition(s, appsv1.DeploymentProgressing) // its lastUpdateTime moves, also if nothing else changes
		setCondition(s, next)
	case was != nil && was.Reason != reasonAvailable && now.Sub(was.LastUpdateTime.Time) >= deadline(ro.d):
		setCondition(s, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.", now))
	}
}

// complete reports whether all replicas are of the new template and available, and no
// other is left.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	n := desired(d)
	return s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n && s.ObservedGeneration >= d.Generation
}

// progressed reports whether a rollout went on: more new replicas, fewer old ones, more
// ready or available ones.
func progressed(was, is *appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas ||
		is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

// failure is the condition of a ReplicaSet that cannot create or delete pods, of the new
// one first.
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

// notePause sets the condition Progressing when a Deployment is paused and resumed, so
// that the time in between does not count. One that has timed out stays so.
func notePause(d *appsv1.Deployment, now time.Time) {
	was := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || was != nil && was.Reason == reasonTimedOut {
		return
	}
	switch paused := was != nil && was.Reason == reasonPaused; {
	case d.Spec.Paused && !paused:
		setCondition(&d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonPaused, "Deployment is paused", now))
	case !d.Spec.Paused && paused:
		setCondition(&d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionUnknown, reasonResumed, "Deployment is resumed", now))
	}
}

// noteFound sets the condition Progressing if there is none: the Deployment adopted its
// new ReplicaSet, or has a deadline only now.
func (ro *rollout) noteFound(now time.Time) {
	if hasDeadline(ro.d) && conditionOf(&ro.d.Status, appsv1.DeploymentProgressing) == nil {
		text := fmt.Sprintf("Found new replica set %q", ro.new.Name)
		setCondition(&ro.d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonFound, text, now))
	}
}

func (ro *rollout) noteCreated(now time.Time) {
	if hasDeadline(ro.d) {
		text := fmt.Sprintf("Created new replica set %q", ro.new.Name)
		setCondition(&ro.d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, text, now))
	}
}

func (ro *rollout) noteFailed(text string, now time.Time) {
	if hasDeadline(ro.d) {
		setCondition(&ro.d.Status, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, text, now))
	}
}

// untilDeadline is how long until a rollout must have made progress; 0 if it need not.
func untilDeadline(d *appsv1.Deployment, now time.Time) time.Duration {
	c := conditionOf(&d.Status, appsv1.DeploymentProgressing)
	if !hasDeadline(d) || c == nil || d.Spec.Paused || d.DeletionTimestamp != nil || c.Reason == reasonAvailable || c.Reason == reasonTimedOut || complete(d, &d.Status) {
		return 0
	}
	return max(c.LastUpdateTime.Add(deadline(d)).Sub(now), time.Second)
}

// hasDeadline reports whether progress is estimated; math.MaxInt32 means never.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func deadline(d *appsv1.Deployment) time.Duration {
	return time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second
}

func condition(typ appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string, now time.Time) appsv1.DeploymentCondition {
	at := metav1.NewTime(now)
	return appsv1.DeploymentCondition{Type: typ, Status: status, Reason: reason, Message: message, LastUpdateTime: at, LastTransitionTime: at}
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

// setCondition adds or replaces a condition, unless it is there with the same status and
// reason. The transition time moves with the status only.
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
