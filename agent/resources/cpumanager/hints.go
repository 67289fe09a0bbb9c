package cpumanager

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"monopod/agent/podapi/status"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// Hints implements topology.Provider.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	need := ExclusiveCPUs(pod, c)
	if need == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.allocated[pod.UID][c.Name]; !has.IsEmpty() {
		return byResource(m.allocatedHints(has, need))
	}
	return byResource(m.hints(m.free(), m.reusable(pod, c), need))
}

// PodHints implements topology.Provider.
func (m *Manager) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	need := podWhole(pod)
	if need == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var has cpuset.CPUSet
	for _, cpus := range m.allocated[pod.UID] {
		has = has.Union(cpus)
	}
	if !has.IsEmpty() {
		return byResource(m.allocatedHints(has, need))
	}
	return byResource(m.hints(m.free(), cpuset.New(), need))
}

func byResource(hints []topology.Hint) map[string][]topology.Hint {
	return map[string][]topology.Hint{string(corev1.ResourceCPU): hints}
}

// podWhole returns how many exclusive CPUs the pod's containers need at the same time: init containers run before the
// others, sidecars together with all later containers.
func podWhole(pod *corev1.Pod) int {
	sidecars, most := 0, 0
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if status.Sidecar(c) {
			sidecars += ExclusiveCPUs(pod, c)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+ExclusiveCPUs(pod, c))
		}
	}
	sum := sidecars
	for i := range pod.Spec.Containers {
		sum += ExclusiveCPUs(pod, &pod.Spec.Containers[i])
	}
	return max(sum, most)
}

// allocatedHints returns the hints for exclusive CPUs that were already allocated: none if their number differs from
// the request.
func (m *Manager) allocatedHints(has cpuset.CPUSet, need int) []topology.Hint {
	if has.Size() != need {
		return []topology.Hint{}
	}
	return m.hints(has, cpuset.New(), need)
}

// hints returns the sets of NUMA nodes that have enough free CPUs and contain all reusable ones. Sets with as few nodes
// as the request needs on an empty machine are preferred.
func (m *Manager) hints(free, reusable cpuset.CPUSet, need int) []topology.Hint {
	var all topology.Nodes
	for _, n := range m.Machine.Nodes {
		all |= topology.NewNodes(n.ID)
	}
	out, least := []topology.Hint{}, len(m.Machine.Nodes)
	for _, set := range all.Subsets() {
		in := m.Machine.Where(func(c numa.CPU) bool { return set.Has(c.Node) })
		if in.Size() >= need {
			least = min(least, set.Count())
		}
		if reusable.IsSubsetOf(in) && free.Union(reusable).Intersection(in).Size() >= need {
			out = append(out, topology.Hint{Nodes: set})
		}
	}
	for i := range out {
		out[i].Preferred = m.preferred(out[i].Nodes, least)
	}
	return out
}

// preferred reports whether the set has as few nodes as possible or, with align-by-socket, as few sockets.
func (m *Manager) preferred(set topology.Nodes, least int) bool {
	if !m.packer.BySocket {
		return set.Count() == least
	}
	sockets := len(groups(m.Machine.CPUs, bySocket))
	perSocket := max(1, len(m.Machine.Nodes)/sockets)
	return len(m.sockets(set)) == (least+perSocket-1)/perSocket
}
