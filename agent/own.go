package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod"
	"monopod/agent/pod/status"
	"monopod/agent/resources/placement"
)

// newPlacement is about what pods have for themselves.
func (a *Agent) newPlacement() (*placement.Placement, error) {
	c := &a.cfg
	return placement.New(placement.Deps{
		Runtime: a.Runtime, Node: a.node, Clock: a.Clock, Log: a.log, Metrics: a.Metrics, Providers: a.Providers,
		Pods: a.placed, Pod: a.placedPod, Known: a.knowsPods, Active: a.active,
	}, placement.Config{
		DataDir: c.DataDir, SysRoot: c.SysRoot, Capacity: a.capacity, Reserve: c.Reserve, Evicting: c.Eviction.Reservation(a.capacity),
		CPUs: c.CPUs, Memory: c.Memory, Topology: c.Topology, Devices: c.Devices, Socket: c.PodResources,
	})
}

// count takes the processors that may be given out as the node's.
func (a *Agent) count(processors int) {
	if processors == 0 {
		return
	}
	a.capacity[corev1.ResourceCPU] = *resource.NewQuantity(int64(processors), resource.DecimalSI)
	a.allocatable = a.cfg.Reserve.Allocatable(a.capacity, a.cfg.Eviction.Reservation(a.capacity))
}

var _ placement.Pod = (*pod.Pod)(nil)

// placed are all pods.
func (a *Agent) placed() map[types.UID]placement.Pod {
	out := map[types.UID]placement.Pod{}
	for uid, w := range a.all() {
		out[uid] = w
	}
	return out
}

func (a *Agent) placedPod(uid types.UID) (placement.Pod, bool) {
	w := a.pod(uid)
	return w, w != nil
}

// settle takes back what pods have that are gone since an agent before this one
// let them in. listed are those of the API.
func (a *Agent) settle(listed []*corev1.Pod) {
	runs := map[types.UID]bool{}
	for _, pod := range listed {
		runs[pod.UID] = !status.Finished(pod.Status.Phase)
	}
	a.placement.Retain(func(uid types.UID) bool { return runs[uid] || a.pod(uid) != nil })
}
