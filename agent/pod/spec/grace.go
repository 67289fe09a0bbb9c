package spec

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Grace is how long a pod's containers have to end: what its deletion says, else
// its spec.
func Grace(pod *corev1.Pod) time.Duration {
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return OwnGrace(pod)
}

// OwnGrace is what the pod's spec says, else upstream's 30 s.
func OwnGrace(pod *corev1.Pod) time.Duration {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(Seconds(*g)) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Seconds is a terminationGracePeriodSeconds as it is meant: a negative one, which
// the API takes, is 1.
func Seconds(grace int64) int64 {
	if grace < 0 {
		return 1
	}
	return grace
}
