package placement

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod/status"
	"monopod/agent/resources/amount"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// newDevices makes the manager of plugins, unless the config says that there are none.
func (p *Placement) newDevices() (err error) {
	cfg := p.cfg.Devices
	if cfg.Dir == "" {
		return nil
	}
	cfg.Clock, cfg.Log, cfg.Metrics, cfg.Changed, cfg.Over = p.Clock, p.Log, p.Metrics, p.changed, p.over
	if !p.cfg.Topology.Off() {
		machine, err := numa.Read(p.cfg.SysRoot)
		if err != nil {
			return err
		}
		for _, n := range machine.Nodes {
			cfg.Nodes |= topology.NewNodes(n.ID)
		}
	}
	p.devices, err = deviceplugin.New(cfg)
	return err
}

// serveDevices serves plugins until ctx ends. A node without them is a node still.
func (p *Placement) serveDevices(ctx context.Context) {
	if p.devices == nil {
		return
	}
	if err := p.devices.Lost(); err != nil {
		p.Node.Event(corev1.EventTypeWarning, "DeviceManagerStateLost", "%v", err)
	}
	if err := p.devices.Run(ctx); err != nil {
		p.Log.Error("device plugins are not served", zap.Error(err))
		p.Node.Event(corev1.EventTypeWarning, "DevicePluginsUnavailable", "%v", err)
	}
}

// changed has the node's status written, and the pods' whose devices it is about.
func (p *Placement) changed(pods []types.UID) {
	p.Node.Poke()
	for _, uid := range pods {
		if pod, ok := p.Pod(uid); ok {
			pod.Wake()
		}
	}
}

// over: what the API says has finished has no containers any more.
func (p *Placement) over(uid types.UID) bool {
	pod, ok := p.Pod(uid)
	return ok && status.Finished(pod.Object().Status.Phase)
}

// Offer puts the devices into the node's status. Other extended resources are
// somebody else's, and stay as cur has them, unless they are of plugins that were
// forgotten.
func (p *Placement) Offer(next, cur *corev1.NodeStatus, first bool) {
	capacity, allocatable := corev1.ResourceList{}, corev1.ResourceList{}
	for name, q := range cur.Capacity {
		if deviceplugin.Extended(string(name)) {
			if first && p.devices != nil && p.devices.Lost() != nil {
				q = resource.Quantity{Format: resource.DecimalSI}
			}
			capacity[name], allocatable[name] = q, q
		}
	}
	if p.devices != nil {
		has, gives := p.devices.Capacity()
		for name := range has {
			capacity[name], allocatable[name] = has[name], gives[name]
		}
	}
	next.Capacity, next.Allocatable = amount.Joined(next.Capacity, capacity), amount.Joined(next.Allocatable, allocatable)
}

// Room is the node with at least the devices that pods have: after a restart
// their plugins may be yet to come.
func (p *Placement) Room(node *corev1.Node) *corev1.Node {
	if p.devices == nil {
		return node
	}
	for name, n := range p.devices.Taken() {
		if have := node.Status.Allocatable[name]; have.CmpInt64(n) < 0 {
			copied := *node
			copied.Status.Allocatable = amount.Joined(node.Status.Allocatable, corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)})
			node = &copied
		}
	}
	return node
}

// PrepareDevices has the plugins allocate what the pod's containers were given. A
// *deviceplugin.Absent is a plugin that is not there since the node started.
func (p *Placement) PrepareDevices(ctx context.Context, pod *corev1.Pod) error {
	if p.devices == nil {
		return nil
	}
	return p.devices.Prepare(ctx, pod)
}

// Health is that of the devices that each container of a pod has; nil: it has none.
func (p *Placement) Health(uid types.UID) map[string][]corev1.ResourceStatus {
	if p.devices == nil {
		return nil
	}
	return p.devices.Health(uid)
}
