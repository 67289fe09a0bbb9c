package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/numa"
	"monopod/agent/status"
	"monopod/agent/topology"
)

// placement gives containers what they have for themselves.
type placement struct{ *topology.Manager }

// newPlacement reads the machine only where somebody wants to know of it.
func newPlacement(a *Agent) (*placement, error) {
	p := &placement{}
	var machine *numa.Machine
	var err error
	if !a.cfg.Topology.Off() {
		if machine, err = numa.Read(a.cfg.SysRoot); err != nil {
			return nil, fmt.Errorf("read the machine's topology: %w", err)
		}
	}
	p.Manager, err = topology.New(topology.Deps{Machine: machine, Providers: a.Providers, Clock: a.Clock, Metrics: a.Metrics}, a.cfg.Topology)
	return p, err
}

// settle takes back what pods have that are gone since an agent before this one
// let them in. listed are those of the API.
func (a *Agent) settle(listed []*corev1.Pod) {
	runs := map[types.UID]bool{}
	for _, pod := range listed {
		runs[pod.UID] = !status.Finished(pod.Status.Phase)
	}
	a.placement.Retain(func(uid types.UID) bool { return runs[uid] || a.worker(uid) != nil })
}
