package agent

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/deviceplugin"
	"monopod/agent/memorymanager"
	"monopod/agent/podresources"
)

// holdings tell programs on the node what containers have for themselves.
type holdings struct{ a *Agent }

var _ podresources.Source = holdings{}

// servePodResources answers them until ctx ends. A node that does not is a node
// still.
func (a *Agent) servePodResources(ctx context.Context) {
	if a.podResources == nil {
		return
	}
	if err := a.podResources.Run(ctx, a.cfg.PodResources); err != nil {
		a.log.Error("the podresources API is not served", zap.Error(err))
	}
}

// Pods implements podresources.Source.
func (h holdings) Pods() []*corev1.Pod { return h.a.active() }

// Container implements podresources.Source.
func (h holdings) Container(uid types.UID, name string) podresources.Share {
	var out podresources.Share
	if d := h.a.devices; d.Manager != nil {
		out.Devices = shown(d.Devices(uid, name))
	}
	if c := h.a.placement.cpus; c != nil {
		out.CPUs = c.Exclusive(uid, name).List()
	}
	if m := h.a.placement.memory; m != nil {
		out.Memory = blocks(m.Blocks(uid, name))
	}
	return out
}

// Allocatable implements podresources.Source.
func (h holdings) Allocatable() podresources.Share {
	var out podresources.Share
	if d := h.a.devices; d.Manager != nil {
		out.Devices = shown(d.Allocatable())
	}
	if c := h.a.placement.cpus; c != nil {
		out.CPUs = c.Allocatable().List()
	}
	if m := h.a.placement.memory; m != nil {
		out.Memory = blocks(m.Allocatable())
	}
	return out
}

func shown(list []deviceplugin.Device) []podresources.Device {
	out := make([]podresources.Device, 0, len(list))
	for _, d := range list {
		out = append(out, podresources.Device(d))
	}
	return out
}

func blocks(list []memorymanager.Block) []podresources.Memory {
	out := make([]podresources.Memory, 0, len(list))
	for _, b := range list {
		out = append(out, podresources.Memory{Type: string(b.Type), Bytes: uint64(b.Size), Nodes: b.Nodes})
	}
	return out
}
