package podgc

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/podstate"
)

// remove marks a pod as failed unless it has finished, then deletes it without grace period. A pod that no longer
// exists, or replaced, counts as a success.
func (c *Controller) remove(ctx context.Context, pod *corev1.Pod, reason string) error {
	if !podstate.Finished(pod) {
		switch err := c.fail(ctx, pod, reason); {
		case replaced(err):
			return nil
		case err != nil:
			return err
		}
	}
	_, err := c.deps.Client.Delete(ctx, client.RefOf(pod), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if replaced(err) {
		return nil
	}
	return err
}

// replaced reports whether the pod with this UID is gone.
func replaced(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// fail sets phase Failed, and a condition that explains it for an orphaned pod.
func (c *Controller) fail(ctx context.Context, pod *corev1.Pod, reason string) error {
	_, err := client.Update(ctx, c.deps.Client, pod, "status", func(p *corev1.Pod) error {
		p.UID = pod.UID // a pod of the same name conflicts
		p.Status.Phase = corev1.PodFailed
		p.Status.ObservedGeneration = p.Generation
		if reason == reasonOrphaned {
			podstate.SetCondition(p, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
				Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
				ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(c.deps.Clock.Now()),
			})
		}
		return nil
	})
	return err
}
