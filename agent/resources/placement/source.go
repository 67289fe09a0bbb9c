package placement

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/memorymanager"
)

// podResources is the Source of the podresources API.
type podResources struct{ p *Placement }

var _ Source = podResources{}

// servePodResources serves the podresources API until ctx ends. A failure does not affect the rest of the node.
func (p *Placement) servePodResources(ctx context.Context) {
	if p.resources == nil {
		return
	}
	if err := p.resources.Run(ctx, p.cfg.Socket, p.Guard); err != nil {
		p.Log.Error("cannot serve the podresources API", zap.Error(err))
	}
}

// Pods implements Source.
func (h podResources) Pods() []*corev1.Pod { return h.p.Active() }

// Container implements Source.
func (h podResources) Container(uid types.UID, name string) Share {
	var out Share
	if d := h.p.plugins.devices; d != nil {
		out.Devices = devicesFrom(d.Devices(uid, name))
	}
	if c := h.p.cpus; c != nil {
		out.CPUs = c.Exclusive(uid, name).List()
	}
	if m := h.p.memory; m != nil {
		out.Memory = memoryFrom(m.Blocks(uid, name))
	}
	return out
}

// Dynamic implements Source.
func (h podResources) Dynamic(pod *corev1.Pod, c *corev1.Container) []*api.DynamicResource {
	if h.p.plugins.claims == nil {
		return nil
	}
	return h.p.plugins.claims.Resources(pod, c)
}

// Allocatable implements Source.
func (h podResources) Allocatable() Share {
	var out Share
	if d := h.p.plugins.devices; d != nil {
		out.Devices = devicesFrom(d.Allocatable())
	}
	if c := h.p.cpus; c != nil {
		out.CPUs = c.Allocatable().List()
	}
	if m := h.p.memory; m != nil {
		out.Memory = memoryFrom(m.Allocatable())
	}
	return out
}

func devicesFrom(list []deviceplugin.Device) []Device {
	out := make([]Device, 0, len(list))
	for _, d := range list {
		out = append(out, Device(d))
	}
	return out
}

func memoryFrom(list []memorymanager.Block) []Memory {
	out := make([]Memory, 0, len(list))
	for _, b := range list {
		out = append(out, Memory{Type: string(b.Type), Bytes: uint64(b.Size), Nodes: b.Nodes})
	}
	return out
}
