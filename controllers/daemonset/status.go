package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"

	"monopod/controllers/podstate"
)

// status counts each node by its first pod.
func (st *syncState) status() appsv1.DaemonSetStatus {
	s := appsv1.DaemonSetStatus{ObservedGeneration: st.ds.Generation, CollisionCount: st.history.Collisions,
		Conditions: st.ds.Status.Conditions}
	for _, node := range st.nodes {
		on := st.pods[node.Name]
		if run, _ := fits(st.ds, node); !run {
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
		if st.available(on[0]) {
			s.NumberAvailable++
		}
		if st.updated(on[0]) {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s
}
