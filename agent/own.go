package agent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod/status"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/placement"
	"monopod/agent/resources/topology"
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

var _ placement.Pod = (*worker)(nil)

// placed are all pods.
func (a *Agent) placed() map[types.UID]placement.Pod {
	out := map[types.UID]placement.Pod{}
	for uid, w := range a.all() {
		out[uid] = w
	}
	return out
}

func (a *Agent) placedPod(uid types.UID) (placement.Pod, bool) {
	w := a.worker(uid)
	return w, w != nil
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

// prepareDevices has the plugins allocate what the pod's containers were given,
// before the first of them starts. Where a plugin will not, the pod fails; where
// one is not there since the node started, the pod waits for it.
func (w *worker) prepareDevices(ctx context.Context) (ok bool, err error) {
	err = w.a.placement.PrepareDevices(ctx, w.pod)
	var absent *deviceplugin.Absent
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case errors.As(err, &absent):
		w.awaitPlugin(absent)
		return false, nil
	}
	w.failure = topology.Refused(err)
	w.a.event(w.pod, "", corev1.EventTypeWarning, w.failure.Reason, "%s", w.failure.Message)
	return false, nil
}

// awaitPlugin says what the pod waits for; the plugin wakes it when it comes.
func (w *worker) awaitPlugin(absent *deviceplugin.Absent) {
	if !w.announced[absent.Resource] {
		w.announced[absent.Resource] = true
		w.a.event(w.pod, "", corev1.EventTypeWarning, "WaitingForDevicePlugin", "%v: the pod waits for it", absent)
	}
	for _, list := range [][]corev1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			w.waiting[list[i].Name] = status.Waiting{Reason: "ContainerCreating", Message: absent.Error()}
		}
	}
}

// showDevices puts the health of each container's devices into the pod's status; of
// those that it had, as it was last.
func (w *worker) showDevices(st *corev1.PodStatus) {
	if now := w.a.placement.Health(w.uid); now != nil {
		w.devices = now
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			list[i].AllocatedResourcesStatus = w.devices[list[i].Name]
		}
	}
}
