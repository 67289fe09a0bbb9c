package podgc

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// remove sets the phase Failed of a pod that has not finished, and the condition DisruptionTarget of an orphaned one,
// then deletes the pod without grace period. It succeeds if the pod no longer exists or was replaced.
func (c *Controller) remove(ctx context.Context, pod *corev1.Pod, reason string) error {
	if !podstate.Finished(pod) {
		_, err := client.Update(ctx, c.deps.Client, pod, "status", func(p *corev1.Pod) error {
			p.UID = pod.UID // conflicts with another pod of the same name
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
		switch {
		case owned.Gone(err):
			return nil
		case err != nil:
			return err
		}
	}
	_, err := c.deps.Client.Delete(ctx, client.RefOf(pod), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	return owned.IgnoreGone(err)
}
