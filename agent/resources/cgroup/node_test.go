package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/resources/cgroup"
)

func TestSharesOfQOSClasses(t *testing.T) {
	t.Parallel()
	dir := tree(t, "", "cpu", "memory", "pids")
	m := manager(dir)
	if err := m.Prepare(cgroup.Limits{Shares: 2048, Memory: 1 << 30, PIDs: 1000}); err != nil {
		t.Fatal(err)
	}
	expect(t, filepath.Join(dir, "cpu/r/cpu.shares"), "2048")
	expect(t, filepath.Join(dir, "cpu/r/kubepods/cpu.shares"), "2048")
	expect(t, filepath.Join(dir, "memory/r/kubepods/memory.limit_in_bytes"), "1073741824")
	expect(t, filepath.Join(dir, "memory/r/memory.limit_in_bytes"), "")
	expect(t, filepath.Join(dir, "pids/r/kubepods/pids.max"), "1000")
	expect(t, filepath.Join(dir, "cpu/r/kubepods/besteffort/cpu.shares"), "2")
	burstable := filepath.Join(dir, "cpu/r/kubepods/burstable/cpu.shares")
	expect(t, burstable, "2")

	first, second := pod(corev1.PodQOSBurstable, "1/1Mi"), pod(corev1.PodQOSBurstable, "500m/1Mi")
	second.UID = "u-2"
	check := func(what string, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		expect(t, burstable, want)
	}
	check("created", m.Create(first), "1024")
	check("adopted", m.Adopt(second), "1536")
	other := pod(corev1.PodQOSGuaranteed, "4/1Mi")
	other.UID = "u-3"
	check("Guaranteed pod", m.Create(other), "1536")
	second.Spec.Containers[0].Resources.Requests = list("250m/1Mi")
	check("resized", m.Create(second), "1280")
	if err := os.WriteFile(burstable, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	check("unchanged", m.Create(second), "untouched")
	clean(t, dir)
	check("removed", m.Remove(&corev1.Pod{ObjectMeta: first.ObjectMeta}), "256") // only the UID is known
}

// With TieredReservation, every cgroup on the path protects the requests of the pods below it; otherwise, none does.
func TestProtectedMemory(t *testing.T) {
	t.Parallel()
	dir := tree(t, all)
	m := cgroup.New(cgroup.Config{Mount: dir, Root: "r", Protect: true})
	if err := m.Prepare(cgroup.Limits{Shares: 2}); err != nil {
		t.Fatal(err)
	}
	guaranteed, burstable := pod(corev1.PodQOSGuaranteed, "1/3Mi"), pod(corev1.PodQOSBurstable, "1/1Mi")
	burstable.UID = "u-2"
	for _, p := range []*corev1.Pod{guaranteed, burstable} {
		if err := m.Create(p); err != nil {
			t.Fatal(err)
		}
	}
	check := func(cgroup, min, low string) {
		t.Helper()
		expect(t, filepath.Join(dir, cgroup, "memory.min"), min)
		expect(t, filepath.Join(dir, cgroup, "memory.low"), low)
	}
	check("r", "3145728", "1048576")
	check("r/kubepods", "3145728", "1048576")
	check("r/kubepods/burstable", "0", "1048576")
	check(m.Parent(guaranteed), "3145728", "0")
	check(m.Parent(burstable), "0", "1048576")
	clean(t, dir)
	if err := m.Remove(guaranteed); err != nil {
		t.Fatal(err)
	}
	check("r/kubepods", "0", "1048576")
	m = manager(dir)
	if err := m.Prepare(cgroup.Limits{Shares: 2}); err != nil {
		t.Fatal(err)
	}
	check("r/kubepods", "0", "0")
	if m.LimitsSwap() {
		t.Error("LimitsSwap is true without memory.swap.max")
	}
	put(t, dir, map[string]string{"r/kubepods/memory.swap.max": "max\n"})
	if !m.LimitsSwap() {
		t.Error("LimitsSwap is false with memory.swap.max")
	}

	old := tree(t, "", "cpu", "memory")
	m = cgroup.New(cgroup.Config{Mount: old, Root: "r", Protect: true})
	if err := errors.Join(m.Prepare(cgroup.Limits{Shares: 2}), m.Create(guaranteed)); err != nil || m.Protect {
		t.Errorf("cgroup v1: %v, protects: %v", err, m.Protect)
	}
	expect(t, filepath.Join(old, "memory", m.Parent(guaranteed), "memory.min"), "")
}

func TestLimitOfForeignCgroup(t *testing.T) {
	t.Parallel()
	dir := tree(t, "", "cpu", "memory", "pids")
	for _, path := range []string{"cpu/a/b", "memory/a/b", "pids/a/b", "cpu/c"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := manager(dir)
	if err := m.Limit("/a/b", cgroup.Limits{Shares: 512, Memory: 1 << 20, PIDs: 7}); err != nil {
		t.Fatal(err)
	}
	expect(t, filepath.Join(dir, "cpu/a/b/cpu.shares"), "512")
	expect(t, filepath.Join(dir, "memory/a/b/memory.limit_in_bytes"), "1048576")
	expect(t, filepath.Join(dir, "pids/a/b/pids.max"), "7")
	if err := m.Limit("c", cgroup.Limits{Shares: 512}); err != nil {
		t.Errorf("limit of CPU only: %v", err)
	}
	err := m.Limit("c", cgroup.Limits{Shares: 256, Memory: 1 << 20})
	if err == nil || !strings.Contains(err.Error(), "the cgroup /c does not exist") {
		t.Errorf("limit of a cgroup that does not exist: %v", err)
	}
	expect(t, filepath.Join(dir, "cpu/c/cpu.shares"), "512") // unchanged by the failed call
	expect(t, filepath.Join(dir, "memory/c/memory.limit_in_bytes"), "")
}

// units is a fake systemd.
type units struct {
	slices map[string]map[string]any
	calls  []string
}

func (u *units) Start(slice string, properties []cgroup.Property) error {
	u.calls = append(u.calls, "start "+slice)
	return u.keep(slice, properties)
}

func (u *units) Set(slice string, properties []cgroup.Property) error {
	u.calls = append(u.calls, "set "+slice)
	return u.keep(slice, properties)
}

func (u *units) keep(slice string, properties []cgroup.Property) error {
	if u.slices == nil {
		u.slices = map[string]map[string]any{}
	}
	if u.slices[slice] == nil {
		u.slices[slice] = map[string]any{}
	}
	for _, p := range properties {
		u.slices[slice][p.Name] = p.Value
	}
	return nil
}

func (u *units) Stop(slice string) error {
	u.calls = append(u.calls, "stop "+slice)
	delete(u.slices, slice)
	return nil
}

// clean removes the files of all cgroups, which the kernel removes together with the folder of a cgroup.
func clean(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || path == filepath.Join(dir, "cgroup.controllers") {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSlices(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		dir                  string
		cpu, memory          string
		shares, limit, quota any
	}{
		"v1": {tree(t, "", "cpu", "memory", "pids"), "CPUShares", "MemoryLimit", uint64(1536), uint64(3 << 20),
			uint64(1500000)},
		"v2": {tree(t, all), "CPUWeight", "MemoryMax", uint64(138), uint64(3 << 20), uint64(1500000)},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			u := &units{}
			m := cgroup.New(cgroup.Config{Mount: c.dir, Root: "r", Units: u})
			p := pod(corev1.PodQOSGuaranteed, "1/1Mi", "500m/2Mi")
			if err := m.Prepare(cgroup.Limits{Shares: 2048, PIDs: 100}); err != nil {
				t.Fatal(err)
			}
			if err := m.Create(p); err != nil {
				t.Fatal(err)
			}
			got := u.slices["r-kubepods-podu_1.slice"]
			for name, want := range map[string]any{c.cpu: c.shares, c.memory: c.limit, "CPUQuotaPerSecUSec": c.quota,
				"DefaultDependencies": false} {
				if got[name] != want {
					t.Errorf("%s: %v, want %v", name, got[name], want)
				}
			}
			if wants, _ := got["Wants"].([]string); len(wants) != 1 || wants[0] != "r-kubepods.slice" {
				t.Errorf("Wants: %v", got["Wants"])
			}
			if u.slices["r-kubepods.slice"]["TasksMax"] != uint64(100) || u.slices["r-kubepods-burstable.slice"] == nil ||
				u.slices["r-kubepods-besteffort.slice"] == nil {
				t.Errorf("slices: %v", u.slices)
			}
			if pods := m.Pods(); len(pods) != 1 || pods[0] != types.UID("u-1") {
				t.Errorf("pods: %v", pods)
			}
			m.Close()
			if u.slices["r-kubepods.slice"] == nil {
				t.Error("Close stopped a slice with a pod")
			}
			clean(t, c.dir)
			if err := m.Remove(p); err != nil {
				t.Fatal(err)
			}
			m.Close()
			if len(u.slices) != 0 {
				t.Errorf("slices left: %v", u.slices)
			}
		})
	}
}

func TestLimitOfASlice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"/system.slice", "/system", "system.slice"} {
		u := &units{}
		dir := tree(t, all)
		if err := os.Mkdir(filepath.Join(dir, "system.slice"), 0o755); err != nil {
			t.Fatal(err)
		}
		m := cgroup.New(cgroup.Config{Mount: dir, Root: "r", Units: u})
		if err := m.Limit(name, cgroup.Limits{Memory: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		if u.slices["system.slice"]["MemoryMax"] != uint64(1<<20) || len(u.slices["system.slice"]) != 1 {
			t.Errorf("%s: %v", name, u.slices)
		}
		expect(t, filepath.Join(dir, "system.slice/memory.max"), "1048576")
		if err := m.Limit("/none.slice", cgroup.Limits{Memory: 1 << 20}); err == nil || len(u.slices) != 1 {
			t.Errorf("limit of a slice that does not exist: %v, %v", err, u.slices)
		}
	}
}
