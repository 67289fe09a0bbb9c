package deviceplugin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/resources/topology"
)

// Device is an allocated or allocatable device.
type Device struct {
	Resource string
	ID       string
	Nodes    topology.Nodes
}

// Health returns the health of the devices of each container, for the pod's status; nil: the pod has no devices.
func (m *Manager) Health(uid types.UID) map[string][]corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	has := m.pool.pods[uid]
	if len(has) == 0 {
		return nil
	}
	out := map[string][]corev1.ResourceStatus{}
	for container, shares := range has {
		for _, name := range sortedKeys(shares) {
			st := corev1.ResourceStatus{Name: corev1.ResourceName(name)}
			for _, id := range shares[name].ids {
				st.Resources = append(st.Resources,
					corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: m.pool.resources[name].health(id)})
			}
			out[container] = append(out[container], st)
		}
	}
	return out
}

// health returns the health of a device; Unknown: no plugin has reported it since the start.
func (r *resource) health(id string) corev1.ResourceHealthStatus {
	d, ok := r.devices[id]
	switch {
	case !ok:
		return corev1.ResourceHealthStatusUnknown
	case d.healthy:
		return corev1.ResourceHealthStatusHealthy
	}
	return corev1.ResourceHealthStatusUnhealthy
}

// Devices returns the devices of a container.
func (m *Manager) Devices(uid types.UID, container string) []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	has := m.pool.pods[uid][container]
	for _, name := range sortedKeys(has) {
		for _, id := range has[name].ids {
			out = append(out, Device{name, id, m.pool.resources[name].devices[id].nodes})
		}
	}
	return out
}

// Allocatable returns all healthy devices, allocated or not.
func (m *Manager) Allocatable() []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	for _, name := range sortedKeys(m.pool.resources) {
		devices := m.pool.resources[name].devices
		for _, id := range sortedKeys(devices) {
			if devices[id].healthy {
				out = append(out, Device{name, id, devices[id].nodes})
			}
		}
	}
	return out
}
