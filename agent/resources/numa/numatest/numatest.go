// Package numatest simulates machines for tests.
package numatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/resources/numa"
)

// Shape is a machine with Sockets, each with Nodes NUMA nodes, each with Cores, each with Threads. CPUs are numbered as
// on PCs: the first threads of all cores, then the second ones. CachesOf cores share an L3 cache; 0: all cores of a
// node.
type Shape struct {
	Sockets, Nodes, Cores, Threads, CachesOf int

	Memory    int64 // bytes of each node; 0: 4 GiB
	HugePages int64 // of 2 MiB on each node
}

// Tree writes the kernel's files about the machine into a new folder, which represents /sys.
func (s Shape) Tree(t testing.TB) string {
	t.Helper()
	sys := t.TempDir()
	write := func(path, format string, args ...any) {
		file := filepath.Join(sys, "devices", "system", path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, format+"\n", args...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	nodes, cores := s.Sockets*s.Nodes, s.Sockets*s.Nodes*s.Cores
	write("cpu/online", "0-%d", cores*s.Threads-1)
	write("node/online", "0-%d", nodes-1)
	for core := range cores {
		for thread := range s.Threads {
			s.cpu(write, core, core+thread*cores)
		}
	}
	for node := range nodes {
		s.node(write, node)
	}
	return sys
}

type writer func(path, format string, args ...any)

func (s Shape) cpu(write writer, core, id int) {
	dir := fmt.Sprintf("cpu/cpu%d/", id)
	share := s.CachesOf
	if share == 0 {
		share = s.Cores
	}
	first := core / share * share
	write(dir+"topology/core_cpus_list", "%s", s.threads(core, 1))
	write(dir+"topology/physical_package_id", "%d", core/s.Cores/s.Nodes)
	write(dir+"cache/index0/level", "1")
	write(dir+"cache/index0/shared_cpu_list", "%s", s.threads(core, 1))
	write(dir+"cache/index3/level", "3")
	write(dir+"cache/index3/shared_cpu_list", "%s", s.threads(first, share))
}

// threads returns the CPUs of n cores from first on.
func (s Shape) threads(first, n int) string {
	var out []string
	for thread := range s.Threads {
		for core := first; core < first+n; core++ {
			out = append(out, fmt.Sprint(core+thread*s.Sockets*s.Nodes*s.Cores))
		}
	}
	return strings.Join(out, ",")
}

func (s Shape) node(write writer, id int) {
	dir, memory := fmt.Sprintf("node/node%d/", id), s.Memory
	if memory == 0 {
		memory = 4 << 30
	}
	write(dir+"cpulist", "%s", s.threads(id*s.Cores, s.Cores))
	write(dir+"meminfo", "Node %d MemTotal:       %d kB\nNode %d MemFree:        1 kB", id, memory>>10, id)
	var distances []string
	for other := range s.Sockets * s.Nodes {
		switch {
		case other == id:
			distances = append(distances, "10")
		case other/s.Nodes == id/s.Nodes:
			distances = append(distances, "11")
		default:
			distances = append(distances, "21")
		}
	}
	write(dir+"distance", "%s", strings.Join(distances, " "))
	write(dir+"hugepages/hugepages-2048kB/nr_hugepages", "%d", s.HugePages)
}

// Machine returns the machine as numa reads it.
func (s Shape) Machine(t testing.TB) *numa.Machine {
	t.Helper()
	m, err := numa.Read(s.Tree(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
