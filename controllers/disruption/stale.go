package disruption

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
)

// staleTimeout is how long the condition may be True without a deletion (upstream: 2 min).
const staleTimeout = 2 * time.Minute

// staleIn returns the time until a pod's condition DisruptionTarget is stale, 0 or less if it is. It returns false if
// the condition stays: the kubelet sets it any time before the pod ends, and that of a finished pod is final.
func staleIn(p *corev1.Pod, now time.Time) (time.Duration, bool) {
	c := podstate.Condition(p, corev1.DisruptionTarget)
	if c == nil || c.Status != corev1.ConditionTrue || c.Reason == corev1.PodReasonTerminationByKubelet ||
		!podstate.Active(p) {
		return 0, false
	}
	return c.LastTransitionTime.Add(staleTimeout).Sub(now), true
}

// recheck resets the condition of a pod that was not deleted in time.
func (c *Controller) recheck(ctx context.Context, k follow.Key) (time.Duration, error) {
	p, err := client.Get[*corev1.Pod](ctx, c.deps.Client, k.Namespace, k.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if left, waits := staleIn(p, c.deps.Clock.Now()); !waits || left > 0 {
		return left, nil
	}
	errNotStale := errors.New("condition is not stale")
	_, err = client.Update(ctx, c.deps.Client, p, "status", func(cur *corev1.Pod) error {
		now := c.deps.Clock.Now()
		if left, waits := staleIn(cur, now); !waits || left > 0 {
			return errNotStale // the change wakes the pod
		}
		podstate.SetCondition(cur, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse,
			ObservedGeneration: cur.Generation, LastTransitionTime: metav1.NewTime(now),
		})
		return nil
	})
	if errors.Is(err, errNotStale) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
