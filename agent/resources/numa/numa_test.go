package numa_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/resources/numa"
	"monopod/agent/resources/numa/numatest"
)

func TestRead(t *testing.T) {
	t.Parallel()
	shape := numatest.Shape{Sockets: 2, Nodes: 2, Cores: 4, Threads: 2, CachesOf: 2, Memory: 1 << 30, HugePages: 8}
	m := shape.Machine(t)
	if len(m.CPUs) != 32 || len(m.Nodes) != 4 || m.ThreadsPerCore() != 2 || m.All().String() != "0-31" {
		t.Fatalf("%d processors, %d nodes, %d threads a core, all %s", len(m.CPUs), len(m.Nodes), m.ThreadsPerCore(), m.All())
	}
	for _, c := range []struct {
		name string
		so   func(numa.CPU) bool
		want string
	}{
		{"core 5", func(c numa.CPU) bool { return c.Core == 5 }, "5,21"},
		{"cache 6", func(c numa.CPU) bool { return c.Cache == 6 }, "6-7,22-23"},
		{"node 2", func(c numa.CPU) bool { return c.Node == 2 }, "8-11,24-27"},
		{"socket 1", func(c numa.CPU) bool { return c.Socket == 1 }, "8-15,24-31"},
	} {
		if got := m.Where(c.so).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	n := m.Nodes[1]
	if n.ID != 1 || n.Memory != 1<<30 || n.HugePages[2<<20] != 8 || n.Distances[0] != 11 || n.Distances[1] != 10 ||
		n.Distances[3] != 21 {
		t.Errorf("node 1: %+v", n)
	}
}

// TestReadLittle reads the files of a small board: no NUMA, no sockets, no caches, and an offline CPU.
func TestReadLittle(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	base := filepath.Join(sys, "devices", "system", "cpu")
	for name, text := range map[string]string{
		"online": "0,2-3\n", "cpu0/topology/physical_package_id": "-1\n",
		"cpu2/topology/thread_siblings_list": "1-2\n", "cpu3/topology/core_cpus_list": "3\n",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, err := numa.Read(sys)
	if err != nil {
		t.Fatal(err)
	}
	want := []numa.CPU{{ID: 0}, {ID: 2, Core: 2, Cache: 2}, {ID: 3, Core: 3, Cache: 3}}
	if len(m.CPUs) != 3 || m.CPUs[0] != want[0] || m.CPUs[1] != want[1] || m.CPUs[2] != want[2] || len(m.Nodes) != 1 ||
		m.ThreadsPerCore() != 1 {
		t.Errorf("machine: %+v", m)
	}
}

func TestReadBroken(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"cpu/online": "x", "node/online": "x", "node/node1/cpulist": "x", "cpu/cpu0/topology/core_cpus_list": "x",
		"cpu/cpu0/topology/physical_package_id": "x",
	} {
		sys := numatest.Shape{Sockets: 1, Nodes: 2, Cores: 1, Threads: 1}.Tree(t)
		if err := os.WriteFile(filepath.Join(sys, "devices", "system", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := numa.Read(sys); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := numa.Read(t.TempDir()); err == nil {
		t.Error("Read succeeded with an empty folder")
	}
}

// TestReadHere reads the machine that the test runs on.
func TestReadHere(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("skipped: no sysfs:", err)
	}
	if m, err := numa.Read("/sys"); err != nil || len(m.CPUs) == 0 || len(m.Nodes) == 0 {
		t.Errorf("error %v, machine %+v", err, m)
	}
}
