package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"

	"monopod/controllers/podstate"
)

// status counts each node by its first pod.
func (v *syncState) status() appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{ObservedGeneration: v.ds.Generation, CollisionCount: v.history.Collisions,
		Conditions: v.ds.Status.Conditions}
	for _, node := range v.nodes {
		on := v.pods[node.Name]
		if run, _ := fits(v.ds, node); !run {
			if len(on) > 0 {
				s.NumberMisscheduled++
			}
			continue
		}
		s.DesiredNumberScheduled++
		if len(on) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		if podstate.Ready(on[0]) {
			s.NumberReady++
		}
		if v.available(on[0]) {
			s.NumberAvailable++
		}
		if v.updated(on[0]) {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}
