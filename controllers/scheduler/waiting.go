package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/controllers/podstate"
)

var (
	errBound     = errors.New("pod is bound already")
	errUnchanged = errors.New("nothing to change")
)

// wake returns the waiting pods: higher priority first, then older first. The
// caller holds mu.
func (r *run) wake() []follow.Key {
	keys := make([]follow.Key, 0, len(r.waiting))
	for k := range r.waiting {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b follow.Key) int { return moreUrgent(r.waiting[a], r.waiting[b]) })
	return keys
}

// wakeAttracted returns those of them with an affinity to other pods.
func (r *run) wakeAttracted() []follow.Key {
	return slices.DeleteFunc(r.wake(), func(k follow.Key) bool { return len(requiredAffinity(r.waiting[k])) == 0 })
}

func moreUrgent(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(priority(b), priority(a)),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// countWaiting updates the gauge; the caller holds mu.
func (r *run) countWaiting() {
	r.pending.WithLabelValues("unschedulable").Set(float64(len(r.waiting)))
}

// unschedulable sets the reason in the pod's condition, and writes an event if it has changed.
func (r *run) unschedulable(ctx context.Context, pod *corev1.Pod, why string) error {
	r.attempts.WithLabelValues(Component, "unschedulable").Inc()
	changed, err := r.condition(ctx, pod, corev1.PodReasonUnschedulable, why)
	if changed {
		r.events.Eventf(pod, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
	}
	return err
}

// gated sets the condition of a pod that waits for its scheduling gates.
func (r *run) gated(ctx context.Context, pod *corev1.Pod) error {
	_, err := r.condition(ctx, pod, corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates")
	return err
}

// condition sets PodScheduled to False, unless it is set already or the pod was bound or replaced.
func (r *run) condition(ctx context.Context, pod *corev1.Pod, reason, message string) (changed bool, err error) {
	_, err = client.Update(ctx, r.deps.Client, pod, "status", func(p *corev1.Pod) error {
		if p.UID != pod.UID || p.Spec.NodeName != "" {
			return errUnchanged
		}
		old := podstate.Condition(p, corev1.PodScheduled)
		if old != nil && old.Status == corev1.ConditionFalse && old.Reason == reason && old.Message == message {
			return errUnchanged
		}
		podstate.SetCondition(p, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.deps.Clock.Now()),
		})
		return nil
	})
	if errors.Is(err, errUnchanged) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
