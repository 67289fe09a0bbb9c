package pod

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/status"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/topology"
)

// devices are the allocated devices of the pod's containers.
type devices struct {
	placement Placement
	id        *identity.Pod
	pace      *pace.Pace

	announced map[string]bool                    // resources whose missing plugin was reported by an event
	health    map[string][]corev1.ResourceStatus // of each container, as last known
}

func newDevices(node *Node, id *identity.Pod, p *pace.Pace) *devices {
	return &devices{placement: node.Placement, id: id, pace: p}
}

// prepare makes the plugins prepare the allocated devices before the first container starts. If a plugin
// refuses, the pod fails; if one has not registered since the node started, the pod waits until it does.
func (d *devices) prepare(ctx context.Context, pod *corev1.Pod) (ok bool, failure *status.Failure, err error) {
	err = d.placement.PrepareDevices(ctx, pod)
	var absent *deviceplugin.Absent
	switch {
	case err == nil:
		return true, nil, nil
	case ctx.Err() != nil:
		return false, nil, ctx.Err()
	case !errors.As(err, &absent):
		return false, topology.Refused(err), nil
	}
	if !d.announced[absent.Resource] {
		if d.announced == nil {
			d.announced = map[string]bool{}
		}
		d.announced[absent.Resource] = true
		d.id.Warn("WaitingForDevicePlugin", "%v: the pod waits for it", absent)
	}
	d.pace.WaitAll(pod, status.Waiting{Reason: "ContainerCreating", Message: absent.Error()}, nil)
	return false, nil, nil
}

// show sets the health of each container's devices in the pod's status; for released devices, the last known
// one.
func (d *devices) show(st *corev1.PodStatus) {
	if now := d.placement.Health(d.id.UID); now != nil {
		d.health = now
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			list[i].AllocatedResourcesStatus = d.health[list[i].Name]
		}
	}
}
