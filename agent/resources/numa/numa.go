// Package numa reads the topology of a machine's CPUs and memory from sysfs: threads,
// cores, sockets and NUMA nodes.
package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// Machine is the topology of a machine.
type Machine struct {
	CPUs  []CPU  // online CPUs, by ID
	Nodes []Node // by id; at least one
}

// CPU is a logical CPU: a thread of a core. The ID of a core or cache is the ID of its first CPU.
type CPU struct{ ID, Core, Cache, Socket, Node int }

// Node is a NUMA node.
type Node struct {
	ID        int
	Memory    int64           // bytes; 0: unknown, there is only one node
	HugePages map[int64]int64 // number, by size in bytes
	Distances map[int]int     // to each node by its id; 10 to itself
}

// Read reads the machine from sys, which is /sys except in tests. A machine without NUMA support has one node.
func Read(sys string) (*Machine, error) {
	base := filepath.Join(sys, "devices", "system")
	online, err := readSet(filepath.Join(base, "cpu", "online"))
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	if err := m.readNodes(filepath.Join(base, "node")); err != nil {
		return nil, err
	}
	homes, err := m.nodesOfCPUs(filepath.Join(base, "node"))
	if err != nil {
		return nil, err
	}
	for _, id := range online.List() {
		cpu, err := readCPU(filepath.Join(base, "cpu", "cpu"+strconv.Itoa(id)), id, online)
		if err != nil {
			return nil, err
		}
		cpu.Node = homes[id]
		m.CPUs = append(m.CPUs, cpu)
	}
	if len(m.CPUs) == 0 {
		return nil, fmt.Errorf("no CPU is online in %s", base)
	}
	return m, nil
}

// readCPU reads the topology of a CPU. If the kernel does not report the core or the cache, no other CPU shares it. If
// it does not report the socket, the CPU is in socket 0.
func readCPU(dir string, id int, online cpuset.CPUSet) (CPU, error) {
	cpu := CPU{ID: id, Core: id, Cache: id}
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} { // the second is the old name
		set, err := readSet(filepath.Join(dir, "topology", name))
		if err == nil {
			cpu.Core = lowest(set.Intersection(online), id)
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return cpu, err
		}
	}
	socket, err := readInt(filepath.Join(dir, "topology", "physical_package_id"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cpu, err
	}
	cpu.Socket = max(socket, 0) // some firmware reports -1
	cpu.Cache = l3Cache(filepath.Join(dir, "cache"), cpu, online)
	return cpu, nil
}

// l3Cache returns the ID of the L3 cache, or of the core if there is none.
func l3Cache(dir string, cpu CPU, online cpuset.CPUSet) int {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		level, err := readInt(filepath.Join(dir, e.Name(), "level"))
		if err != nil || level != 3 {
			continue
		}
		if set, err := readSet(filepath.Join(dir, e.Name(), "shared_cpu_list")); err == nil {
			return lowest(set.Intersection(online), cpu.ID)
		}
	}
	return cpu.Core
}

func lowest(set cpuset.CPUSet, otherwise int) int {
	if set.IsEmpty() {
		return otherwise
	}
	return slices.Min(set.UnsortedList())
}

// readNodes reads the memory of each node.
func (m *Machine) readNodes(dir string) error {
	ids, err := readSet(filepath.Join(dir, "online"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && ids.IsEmpty() {
		m.Nodes = []Node{{Distances: map[int]int{0: localDistance}}}
		return nil
	}
	if err != nil {
		return err
	}
	for _, id := range ids.List() {
		node, err := readNode(filepath.Join(dir, "node"+strconv.Itoa(id)), id, ids.List())
		if err != nil {
			return err
		}
		m.Nodes = append(m.Nodes, node)
	}
	return nil
}

// localDistance is ACPI's distance of a node to itself.
const localDistance = 10

func readNode(dir string, id int, ids []int) (Node, error) {
	node := Node{ID: id, HugePages: map[int64]int64{}, Distances: map[int]int{id: localDistance}}
	text, err := os.ReadFile(filepath.Join(dir, "meminfo"))
	if err != nil {
		return node, err
	}
	for line := range strings.Lines(string(text)) { // Node 0 MemTotal:  22767828 kB
		if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[3], 10, 64)
			node.Memory = kib << 10
		}
	}
	if text, err = os.ReadFile(filepath.Join(dir, "distance")); err == nil {
		for i, f := range strings.Fields(string(text)) {
			if d, err := strconv.Atoi(f); err == nil && i < len(ids) {
				node.Distances[ids[i]] = d
			}
		}
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "hugepages"))
	for _, e := range entries { // hugepages-2048kB
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if n, err2 := readInt(filepath.Join(dir, "hugepages", e.Name(), "nr_hugepages")); err == nil && err2 == nil {
			node.HugePages[kib<<10] = int64(n)
		}
	}
	return node, nil
}

// nodesOfCPUs returns the node of each CPU.
func (m *Machine) nodesOfCPUs(dir string) (map[int]int, error) {
	out := map[int]int{}
	for _, node := range m.Nodes {
		set, err := readSet(filepath.Join(dir, "node"+strconv.Itoa(node.ID), "cpulist"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, id := range set.UnsortedList() {
			out[id] = node.ID
		}
	}
	return out, nil
}

// All returns all CPUs.
func (m *Machine) All() cpuset.CPUSet { return m.Where(func(CPU) bool { return true }) }

// Where returns the CPUs that match.
func (m *Machine) Where(match func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m.CPUs {
		if match(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// ThreadsPerCore returns the number of threads of a core.
func (m *Machine) ThreadsPerCore() int {
	cores := map[int]bool{}
	for _, c := range m.CPUs {
		cores[c.Core] = true
	}
	return max(1, len(m.CPUs)/max(1, len(cores)))
}

func readSet(path string) (cpuset.CPUSet, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return set, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

func readInt(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
