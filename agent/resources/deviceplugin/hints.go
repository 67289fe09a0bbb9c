package deviceplugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	compresource "k8s.io/component-helpers/resource"

	"monopod/agent/resources/topology"
)

// Hints implements topology.Provider.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[string][]topology.Hint
	for name, count := range m.pool.requested(pod, c) {
		if out == nil {
			out = map[string][]topology.Hint{}
		}
		if has := m.pool.pods[pod.UID].of(c.Name, name); has != nil {
			out[name] = m.pool.resources[name].hints(m.cfg.Nodes, count, has, nil)
			continue
		}
		out[name] = m.pool.resources[name].hints(m.cfg.Nodes, count, m.pool.free(name), m.pool.reusable(pod, c, name))
	}
	return out
}

// PodHints implements topology.Provider.
func (m *Manager) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out map[string][]topology.Hint
	for name, q := range compresource.PodRequests(pod, compresource.PodResourcesOptions{}) {
		r := m.pool.resources[string(name)]
		if r == nil || q.IsZero() {
			continue
		}
		var has []string
		for container := range m.pool.pods[pod.UID] {
			has = append(has, m.pool.pods[pod.UID].of(container, string(name))...)
		}
		slices.Sort(has)
		if has = slices.Compact(has); has == nil {
			has = m.pool.free(string(name))
		}
		if out == nil {
			out = map[string][]topology.Hint{}
		}
		out[string(name)] = r.hints(m.cfg.Nodes, int(q.Value()), has, nil)
	}
	return out
}

// hints returns the sets of NUMA nodes that can provide count devices: all reusable ones, and other free ones. nil: the
// devices have no NUMA nodes. A set is preferred if no smaller one has as many devices, free or not.
func (r *resource) hints(machine topology.Nodes, count int, free, reuse []string) []topology.Hint {
	if !r.hasNodes() {
		return nil
	}
	out := []topology.Hint{}
	if len(free)+len(reuse) < count {
		return out
	}
	least := machine.Count()
	for _, nodes := range machine.Subsets() {
		if r.devicesOn(nodes) >= count {
			least = min(least, nodes.Count())
		}
		if r.allOn(reuse, nodes) && r.countOn(reuse, nodes)+r.countOn(free, nodes) >= count {
			out = append(out, topology.Hint{Nodes: nodes})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Count() == least
	}
	return out
}

func (r *resource) hasNodes() bool {
	for _, d := range r.devices {
		if d.nodes != 0 {
			return true
		}
	}
	return false
}

// devicesOn returns the number of devices on the nodes.
func (r *resource) devicesOn(nodes topology.Nodes) int {
	n := 0
	for _, d := range r.devices {
		if d.nodes&nodes != 0 {
			n++
		}
	}
	return n
}

// countOn returns how many of the given devices are on the nodes.
func (r *resource) countOn(ids []string, nodes topology.Nodes) int {
	n := 0
	for _, id := range ids {
		if r.devices[id].nodes&nodes != 0 {
			n++
		}
	}
	return n
}

// allOn reports whether all given devices are on the nodes, or have no node.
func (r *resource) allOn(ids []string, nodes topology.Nodes) bool {
	return !slices.ContainsFunc(ids, func(id string) bool {
		d := r.devices[id].nodes
		return d != 0 && d&nodes == 0
	})
}
