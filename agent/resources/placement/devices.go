package placement

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/amount"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// newDevices creates the device manager, unless the config disables it.
func (p *Placement) newDevices() (err error) {
	cfg := p.cfg.Devices
	if cfg.Dir == "" {
		return nil
	}
	if p.cfg.Plugins != "" {
		cfg.Watch = p.watchPlugins
	}
	cfg.Clock, cfg.Log, cfg.Metrics, cfg.Guard = p.Clock, p.Log, p.Metrics, p.Guard
	cfg.Changed, cfg.Over = p.changed, p.finished
	if !p.cfg.Topology.Off() {
		machine, err := numa.Read(p.cfg.SysRoot)
		if err != nil {
			return err
		}
		for _, n := range machine.Nodes {
			cfg.Nodes |= topology.NewNodes(n.ID)
		}
	}
	p.plugins.devices, err = deviceplugin.New(cfg)
	return err
}

// serveDevices serves plugins until ctx ends. A failure does not affect the rest of
// the node.
func (p *Placement) serveDevices(ctx context.Context) {
	if p.plugins.devices == nil {
		return
	}
	if err := p.plugins.devices.Lost(); err != nil {
		p.Node.Event(corev1.EventTypeWarning, "DeviceManagerStateLost", "%v", err)
	}
	if err := p.plugins.devices.Run(ctx); err != nil {
		p.Log.Error("cannot serve device plugins", zap.Error(err))
		p.Node.Event(corev1.EventTypeWarning, "DevicePluginsUnavailable", "%v", err)
	}
}

// changed triggers an update of the node's status and of the pods that use the
// devices.
func (p *Placement) changed(pods []types.UID) {
	p.Node.Poke()
	p.wake(pods)
}

func (p *Placement) wake(pods []types.UID) {
	for _, uid := range pods {
		if pod, ok := p.Pod(uid); ok {
			pod.Wake()
		}
	}
}

// finished reports whether the API shows the pod as finished: then it has no running containers.
func (p *Placement) finished(uid types.UID) bool {
	pod, ok := p.Pod(uid)
	return ok && status.Finished(pod.Object().Status.Phase)
}

// Offer adds the devices to the node's status. Extended resources that plugins do not serve stay as in cur.
func (p *Placement) Offer(next, cur *corev1.NodeStatus, first bool) {
	capacity, allocatable := corev1.ResourceList{}, corev1.ResourceList{}
	for name, q := range cur.Capacity {
		if deviceplugin.Extended(string(name)) {
			if first && p.plugins.devices != nil && p.plugins.devices.Lost() != nil {
				q = resource.Quantity{Format: resource.DecimalSI}
			}
			capacity[name], allocatable[name] = q, q
		}
	}
	if p.plugins.devices != nil {
		all, healthy := p.plugins.devices.Capacity()
		for name := range all {
			capacity[name], allocatable[name] = all[name], healthy[name]
		}
	}
	next.Capacity, next.Allocatable = amount.Joined(next.Capacity, capacity), amount.Joined(next.Allocatable, allocatable)
}

// WithDevices returns the node with at least the devices that are allocated to pods: after a restart their plugins may
// not have registered yet.
func (p *Placement) WithDevices(node *corev1.Node) *corev1.Node {
	if p.plugins.devices == nil {
		return node
	}
	for name, n := range p.plugins.devices.Taken() {
		if have := node.Status.Allocatable[name]; have.CmpInt64(n) < 0 {
			copied := *node
			copied.Status.Allocatable = amount.Joined(node.Status.Allocatable,
				corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)})
			node = &copied
		}
	}
	return node
}

// PrepareDevices makes the plugins allocate the devices of the pod's containers. The
// error is a *deviceplugin.Absent if a plugin has not registered since the start.
func (p *Placement) PrepareDevices(ctx context.Context, pod *corev1.Pod) error {
	if p.plugins.devices == nil {
		return nil
	}
	return p.plugins.devices.Prepare(ctx, pod)
}

// Health returns the health of the devices of each container of a pod; nil: the pod has no devices.
func (p *Placement) Health(uid types.UID) map[string][]corev1.ResourceStatus {
	var out map[string][]corev1.ResourceStatus
	if p.plugins.devices != nil {
		out = p.plugins.devices.Health(uid)
	}
	pod, ok := p.Pod(uid)
	if p.plugins.claims == nil || !ok {
		return out
	}
	for container, all := range p.plugins.claims.Health(pod.Object()) {
		if out == nil {
			out = map[string][]corev1.ResourceStatus{}
		}
		out[container] = append(out[container], all...)
	}
	return out
}
