package spec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Grace returns the grace period of a pod: that of its deletion, or that of its spec.
func Grace(pod *corev1.Pod) time.Duration {
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return OwnGrace(pod)
}

// OwnGrace returns the grace period of the pod's spec, or upstream's default of 30 s.
func OwnGrace(pod *corev1.Pod) time.Duration {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(Seconds(*g)) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Seconds returns the effective terminationGracePeriodSeconds: a negative value, which the API accepts, counts as 1.
func Seconds(grace int64) int64 {
	if grace < 0 {
		return 1
	}
	return grace
}
