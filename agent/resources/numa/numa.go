// Package numa reads from sysfs how a machine's processors and memory lie to each
// other: threads in cores, cores on sockets, both on NUMA nodes.
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

// Machine is what Read found.
type Machine struct {
	CPUs  []CPU  // by id; those that are online
	Nodes []Node // by id; at least one
}

// CPU is a processor as the scheduler sees it: a thread of a core. A core and a
// cache are called by the lowest processor in them.
type CPU struct{ ID, Core, Cache, Socket, Node int }

// Node is memory and the processors near to it.
type Node struct {
	ID        int
	Memory    int64           // bytes; 0: not known, there is but one node
	HugePages map[int64]int64 // how many, by their bytes
	Distances map[int]int     // to each node by its id; 10 to itself
}

// Read reads the machine in a tree such as /sys. One whose kernel knows of no NUMA
// nodes has one.
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
	homes, err := m.homes(filepath.Join(base, "node"))
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
		return nil, fmt.Errorf("no processor is online in %s", base)
	}
	return m, nil
}

// readCPU reads what the kernel tells of a processor. What it does not know is a
// core, a cache and a socket for itself or for all.
func readCPU(dir string, id int, online cpuset.CPUSet) (CPU, error) {
	cpu := CPU{ID: id, Core: id, Cache: id}
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} { // the second is its old name
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
	cpu.Socket = max(socket, 0) // some firmware says -1
	cpu.Cache = uncore(filepath.Join(dir, "cache"), cpu, online)
	return cpu, nil
}

// uncore names the cache of the third level, or the core where there is none.
func uncore(dir string, cpu CPU, online cpuset.CPUSet) int {
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

// homes is the node of each processor.
func (m *Machine) homes(dir string) (map[int]int, error) {
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

// All are the processors.
func (m *Machine) All() cpuset.CPUSet { return m.Where(func(CPU) bool { return true }) }

// Where are the processors that are so.
func (m *Machine) Where(so func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m.CPUs {
		if so(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// ThreadsPerCore is how many threads the cores have.
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
