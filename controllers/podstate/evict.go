package podstate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// Disrupt sets the condition DisruptionTarget of a pod that has not ended, before it is deleted.
func Disrupt(ctx context.Context, c client.Client, pod *corev1.Pod, reason, message string, now time.Time) error {
	if Finished(pod) {
		return nil
	}
	_, err := client.Update(ctx, c, pod, "status", func(p *corev1.Pod) error {
		p.UID = pod.UID
		SetCondition(p, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(now),
		})
		return nil
	})
	return err
}
