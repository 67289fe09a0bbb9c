package disruption

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"monopod/controllers/podstate"
)

// deletionTimeout is how long the deletion of an evicted pod may take to be observed before the pod counts as healthy
// again (upstream: 2 min).
const deletionTimeout = 2 * time.Minute

// demand contains what a budget requires.
type demand struct {
	expected  int32 // expected pods
	healthy   int32 // required healthy pods
	unmanaged int   // pods without a controller that has a scale
}

// demandOf computes the demand for a number of expected pods. Percentages are rounded up.
func demandOf(s *policyv1.PodDisruptionBudgetSpec, expected int32) (demand, error) {
	d := demand{expected: expected}
	switch {
	case s.MaxUnavailable != nil:
		away, err := intstr.GetScaledValueFromIntOrPercent(s.MaxUnavailable, int(expected), true)
		d.healthy = max(0, expected-int32(away))
		return d, err
	case s.MinAvailable != nil:
		there, err := intstr.GetScaledValueFromIntOrPercent(s.MinAvailable, int(expected), true)
		d.healthy = int32(there)
		return d, err
	}
	return d, nil
}

// byScale reports whether the expected number of pods comes from the scale of the pods' controllers; otherwise it is
// the number of existing pods.
func byScale(s *policyv1.PodDisruptionBudgetSpec) bool {
	return s.MaxUnavailable != nil || s.MinAvailable != nil && s.MinAvailable.Type == intstr.String
}

// setStatus computes the status. again is the time until the deletion of an evicted pod is overdue; 0: none is pending.
func setStatus(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, want demand, now time.Time) (again time.Duration) {
	s := &b.Status
	waited := map[string]metav1.Time{}
	var healthy int32
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		if at, ok := s.DisruptedPods[p.Name]; ok {
			if left := at.Add(deletionTimeout).Sub(now); left > 0 {
				waited[p.Name] = at
				if again == 0 || left < again {
					again = left
				}
				continue
			}
		}
		if podstate.Ready(p) {
			healthy++
		}
	}
	s.DisruptedPods = nil
	if len(waited) > 0 {
		s.DisruptedPods = waited
	}
	s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods = healthy, want.healthy, want.expected
	s.DisruptionsAllowed, s.ObservedGeneration = max(0, healthy-want.healthy), b.Generation
	if want.expected <= 0 {
		s.DisruptionsAllowed = 0
	}
	poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
	return again
}

// overdue returns the evicted pods that were not deleted within deletionTimeout.
func overdue(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) (out []*corev1.Pod) {
	for _, p := range pods {
		if at, ok := b.Status.DisruptedPods[p.Name]; ok && p.DeletionTimestamp == nil && !at.Add(deletionTimeout).After(now) {
			out = append(out, p)
		}
	}
	return out
}
