package agent

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/amount"
	"monopod/agent/deviceplugin"
	"monopod/agent/numa"
	"monopod/agent/status"
	"monopod/agent/topology"
)

// devices are what device plugins offer; without a Manager there are none.
type devices struct {
	*deviceplugin.Manager
	a *Agent
}

// newDevices makes them one of the providers, unless the config says that there
// are no plugins.
func newDevices(a *Agent) (*devices, error) {
	d, cfg := &devices{a: a}, a.cfg.Devices
	if cfg.Dir == "" {
		return d, nil
	}
	cfg.Clock, cfg.Log, cfg.Metrics, cfg.Changed, cfg.Over = a.Clock, a.log, a.Metrics, d.changed, d.over
	if !a.cfg.Topology.Off() {
		machine, err := numa.Read(a.cfg.SysRoot)
		if err != nil {
			return nil, err
		}
		for _, n := range machine.Nodes {
			cfg.Nodes |= topology.NewNodes(n.ID)
		}
	}
	var err error
	if d.Manager, err = deviceplugin.New(cfg); err != nil {
		return nil, err
	}
	a.Providers = append(slices.Clone(a.Providers), d.Manager)
	return d, nil
}

// run serves plugins until ctx ends. A node without them is a node still.
func (d *devices) run(ctx context.Context) {
	if d.Manager == nil {
		return
	}
	if err := d.Lost(); err != nil {
		d.a.node.Event(corev1.EventTypeWarning, "DeviceManagerStateLost", "%v", err)
	}
	if err := d.Run(ctx); err != nil {
		d.a.log.Error("device plugins are not served", zap.Error(err))
		d.a.node.Event(corev1.EventTypeWarning, "DevicePluginsUnavailable", "%v", err)
	}
}

// changed has the node's status written, and the pods' whose devices it is about.
func (d *devices) changed(pods []types.UID) {
	d.a.node.Poke()
	for _, uid := range pods {
		if w := d.a.worker(uid); w != nil {
			w.wakeUp()
		}
	}
}

// over: what the API says has finished has no containers any more.
func (d *devices) over(uid types.UID) bool {
	w := d.a.worker(uid)
	return w != nil && status.Finished(w.current.Load().Status.Phase)
}

// offer puts the devices into the node's status. Other extended resources are
// somebody else's, and stay as cur has them, unless they are of plugins that were
// forgotten.
func (d *devices) offer(next, cur *corev1.NodeStatus, first bool) {
	capacity, allocatable := corev1.ResourceList{}, corev1.ResourceList{}
	for name, q := range cur.Capacity {
		if deviceplugin.Extended(string(name)) {
			if first && d.Manager != nil && d.Lost() != nil {
				q = resource.Quantity{Format: resource.DecimalSI}
			}
			capacity[name], allocatable[name] = q, q
		}
	}
	if d.Manager != nil {
		has, gives := d.Capacity()
		for name := range has {
			capacity[name], allocatable[name] = has[name], gives[name]
		}
	}
	next.Capacity, next.Allocatable = amount.Joined(next.Capacity, capacity), amount.Joined(next.Allocatable, allocatable)
}

// room is the node with at least the devices that pods have: after a restart
// their plugins may be yet to come.
func (d *devices) room(node *corev1.Node) *corev1.Node {
	if d.Manager == nil {
		return node
	}
	for name, n := range d.Taken() {
		if have := node.Status.Allocatable[name]; have.CmpInt64(n) < 0 {
			copied := *node
			copied.Status.Allocatable = amount.Joined(node.Status.Allocatable, corev1.ResourceList{name: *resource.NewQuantity(n, resource.DecimalSI)})
			node = &copied
		}
	}
	return node
}

// prepareDevices has the plugins allocate what the pod's containers were given,
// before the first of them starts. Where a plugin will not, the pod fails; where
// one is not there since the node started, the pod waits for it.
func (w *worker) prepareDevices(ctx context.Context) (ok bool, err error) {
	if w.a.devices.Manager == nil {
		return true, nil
	}
	err = w.a.devices.Prepare(ctx, w.pod)
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
	if w.a.devices.Manager == nil {
		return
	}
	if now := w.a.devices.Health(w.uid); now != nil {
		w.devices = now
	}
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			list[i].AllocatedResourcesStatus = w.devices[list[i].Name]
		}
	}
}
