package replicaset

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/podstate"
)

// observeAges records the age of each victim relative to the youngest pod; a value near 1 means that the youngest pods
// are deleted. The age is at least one second, to avoid a division by zero.
func (c *Controller) observeAges(pods, victims []*corev1.Pod, now time.Time) {
	youngest := math.Inf(1)
	for _, p := range pods {
		if podstate.Ready(p) {
			youngest = min(youngest, readyAge(p, now))
		}
	}
	for _, p := range victims {
		if podstate.Ready(p) {
			c.sortings.WithLabelValues().Observe(readyAge(p, now) / youngest)
		}
	}
}

func readyAge(p *corev1.Pod, now time.Time) float64 {
	return max(1, now.Sub(podstate.ReadySince(p)).Seconds())
}
