package pod

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/identity"
	"monopod/agent/pod/pace"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/dra"
	"monopod/agent/resources/topology"
)

// devices prepares and releases the allocated devices of the pod's containers, and reports their health.
type devices struct {
	placement Placement
	id        *identity.Pod
	pace      *pace.Pace

	announcedPlugins map[string]bool                    // resources whose missing plugin was reported by an event
	reported         string                             // the last event about a claim that failed
	heldBack         bool                               // the pod's final phase is held back until its claims are released
	health           map[string][]corev1.ResourceStatus // of each container, as last known
}

func newDevices(node *Node, id *identity.Pod, p *pace.Pace) *devices {
	return &devices{placement: node.Placement, id: id, pace: p}
}

// prepare makes the plugins prepare the allocated devices, and the DRA drivers those of the pod's ResourceClaims,
// before the first container starts. If a plugin refuses, the pod fails. If a plugin or a driver has not registered
// since the node started, the pod waits until it does. Other errors of drivers are retried.
func (d *devices) prepare(ctx context.Context, pod *corev1.Pod) (ok bool, failure *status.Failure, err error) {
	if err := d.placement.PrepareDevices(ctx, pod); err != nil {
		absent := (*deviceplugin.Absent)(nil)
		if ctx.Err() != nil {
			return false, nil, ctx.Err()
		}
		if !errors.As(err, &absent) {
			return false, topology.Refused(err), nil
		}
		if !d.announcedPlugins[absent.Resource] {
			if d.announcedPlugins == nil {
				d.announcedPlugins = map[string]bool{}
			}
			d.announcedPlugins[absent.Resource] = true
			d.id.Warn("WaitingForDevicePlugin", "%v: the pod waits for it", absent)
		}
		d.pace.WaitAll(pod, status.Waiting{Reason: "ContainerCreating", Message: absent.Error()}, nil)
		return false, nil, nil
	}
	err = d.placement.PrepareClaims(ctx, pod)
	if err == nil {
		d.reported = ""
		return true, nil, nil
	}
	if ctx.Err() != nil {
		return false, nil, ctx.Err()
	}
	d.eventOnce("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+err.Error())
	d.pace.WaitAll(pod, status.Waiting{Reason: "ContainerCreating", Message: err.Error()}, nil)
	if absent := (*dra.Absent)(nil); errors.As(err, &absent) {
		return false, nil, nil
	}
	return false, nil, err
}

// release makes the DRA drivers release the pod's ResourceClaims, once its containers are dead.
func (d *devices) release(ctx context.Context) error {
	err := d.placement.UnprepareClaims(ctx, d.id.UID)
	if err != nil && ctx.Err() == nil {
		d.eventOnce("FailedUnprepareDynamicResources", "Failed to unprepare dynamic resources: "+err.Error())
	}
	return err
}

// eventOnce writes an event unless the last one has the same message.
func (d *devices) eventOnce(reason, message string) {
	if d.reported != message {
		d.reported = message
		d.id.Warn(reason, "%s", message)
	}
}

// holdPhase keeps a pod from becoming finished while it has resource claims: with the phase, others may get its
// devices.
func (d *devices) holdPhase(st *corev1.PodStatus, terminal bool) {
	if d.heldBack = !terminal && status.Finished(st.Phase) && d.placement.HoldsClaims(d.id.UID); d.heldBack {
		st.Phase = corev1.PodRunning
	}
}

// setHealth sets the health of each container's devices in the pod's status. Released devices keep their last health.
func (d *devices) setHealth(st *corev1.PodStatus) {
	if now := d.placement.Health(d.id.UID); now != nil {
		d.health = now
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			list[i].AllocatedResourcesStatus = d.health[list[i].Name]
		}
	}
}
