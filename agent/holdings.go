package agent

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/deviceplugin"
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
	return out
}

func shown(list []deviceplugin.Device) []podresources.Device {
	out := make([]podresources.Device, 0, len(list))
	for _, d := range list {
		out = append(out, podresources.Device(d))
	}
	return out
}
