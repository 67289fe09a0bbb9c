package cgroup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/resources/cgroup"
)

func pod(qos corev1.PodQOSClass, limits ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}, Status: corev1.PodStatus{QOSClass: qos}}
	for _, l := range limits {
		c := corev1.Container{}
		if l != "" {
			c.Resources.Limits = list(l)
			c.Resources.Requests = c.Resources.Limits
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// list parses "CPU/MEMORY"; further parts are NAME=AMOUNT.
func list(text string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i, part := range strings.Split(text, "/") {
		name, amount, ok := strings.Cut(part, "=")
		if !ok {
			name, amount = []string{"cpu", "memory"}[i], part
		}
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

func manager(mount string) *cgroup.Manager { return cgroup.New(cgroup.Config{Mount: mount, Root: "r"}) }

func TestParent(t *testing.T) {
	t.Parallel()
	plain := cgroup.New(cgroup.Config{Mount: t.TempDir(), Root: "monopod-1"})
	slices := cgroup.New(cgroup.Config{Mount: t.TempDir(), Root: "monopod-1", Units: &units{}})
	for qos, want := range map[corev1.PodQOSClass][2]string{
		corev1.PodQOSGuaranteed: {"/monopod-1/kubepods/podu-1",
			"/monopod_1.slice/monopod_1-kubepods.slice/monopod_1-kubepods-podu_1.slice"},
		corev1.PodQOSBurstable: {"/monopod-1/kubepods/burstable/podu-1",
			"/monopod_1.slice/monopod_1-kubepods.slice/monopod_1-kubepods-burstable.slice/monopod_1-kubepods-burstable-podu_1.slice"},
		corev1.PodQOSBestEffort: {"/monopod-1/kubepods/besteffort/podu-1",
			"/monopod_1.slice/monopod_1-kubepods.slice/monopod_1-kubepods-besteffort.slice/monopod_1-kubepods-besteffort-podu_1.slice"},
	} {
		if got := plain.Parent(pod(qos)); got != want[0] {
			t.Errorf("%s: %s", qos, got)
		}
		if got := slices.Parent(pod(qos)); got != want[1] {
			t.Errorf("%s: %s", qos, got)
		}
	}
	root := cgroup.New(cgroup.Config{Mount: t.TempDir(), Root: "/", Units: &units{}})
	if got := root.Parent(pod(corev1.PodQOSGuaranteed)); got != "/kubepods.slice/kubepods-podu_1.slice" {
		t.Error("parent below the root: ", got)
	}
}

// tree creates a folder like a cgroup mount. v2 has the controllers of cgroup v2, separated by spaces; v1 are the
// hierarchies of cgroup v1.
func tree(t *testing.T, v2 string, v1 ...string) string {
	t.Helper()
	dir := t.TempDir()
	if v2 != "" {
		put(t, dir, map[string]string{"cgroup.controllers": v2 + "\n"})
	}
	for _, name := range v1 {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const all = "cpuset cpu io memory hugetlb pids"

func expect(t *testing.T, path, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if want == "" && os.IsNotExist(err) {
		return
	}
	if err != nil || string(b) != want {
		t.Errorf("%s: %q, %v; want %q", path, b, err, want)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	itself := pod(corev1.PodQOSBurstable, "1/1Mi", "")
	itself.Spec.Resources = &corev1.ResourceRequirements{Requests: list("2/1Mi"), Limits: list("memory=4Mi")}
	for name, c := range map[string]struct {
		pod                                 *corev1.Pod
		shares, quota, memory, huge, weight string
	}{
		"two limits": {pod(corev1.PodQOSGuaranteed, "1/1Mi", "500m/2Mi"), "1536", "150000", "3145728", "0", "138"},
		"one limit":  {pod(corev1.PodQOSBurstable, "1/1Mi", ""), "1024", "", "", "0", "100"},
		"pod-level":  {itself, "2048", "", "4194304", "0", "174"},
		"100m CPU":   {pod(corev1.PodQOSGuaranteed, "100m/1Mi"), "102", "10000", "1048576", "0", "17"},
		"none":       {pod(corev1.PodQOSBestEffort, ""), "2", "", "", "0", "1"},
		"huge pages": {pod(corev1.PodQOSBestEffort, "hugepages-2Mi=4Mi", "hugepages-2Mi=2Mi"), "2", "", "", "6291456", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := cgroup.Config{Root: "r", MaxPIDs: 100, HugePages: []int64{2 << 20, 1 << 30}}
			config.Mount = tree(t, "", "cpu", "memory", "pids", "hugetlb", "blkio")
			m := cgroup.New(config)
			if err := m.Create(c.pod); err != nil {
				t.Fatal(err)
			}
			at := func(controller, file string) string {
				return filepath.Join(config.Mount, controller, m.Parent(c.pod), file)
			}
			expect(t, at("cpu", "cpu.shares"), c.shares)
			expect(t, at("cpu", "cpu.cfs_quota_us"), c.quota)
			expect(t, at("memory", "memory.limit_in_bytes"), c.memory)
			expect(t, at("pids", "pids.max"), "100")
			expect(t, at("hugetlb", "hugetlb.2MB.limit_in_bytes"), c.huge)
			expect(t, at("hugetlb", "hugetlb.2MB.rsvd.limit_in_bytes"), c.huge)
			expect(t, at("hugetlb", "hugetlb.1GB.limit_in_bytes"), "0")

			config.Mount = tree(t, all)
			m = cgroup.New(config)
			if err := m.Create(c.pod); err != nil {
				t.Fatal(err)
			}
			expect(t, at("", "cpu.weight"), c.weight)
			if c.quota != "" {
				c.quota += " 100000"
			}
			expect(t, at("", "cpu.max"), c.quota)
			expect(t, at("", "memory.max"), c.memory)
			expect(t, at("", "pids.max"), "100")
			expect(t, at("", "hugetlb.2MB.max"), c.huge)
			expect(t, at("", "hugetlb.1GB.rsvd.max"), "0")
			expect(t, filepath.Join(filepath.Dir(at("", "")), "cgroup.subtree_control"), "+hugetlb") // the last write
		})
	}
}

func TestMachineWithBothCgroupVersions(t *testing.T) {
	t.Parallel()
	dir := tree(t, "", "cpu", "memory", "unified")
	put(t, dir, map[string]string{"unified/cgroup.controllers": "hugetlb\n"})
	m := cgroup.New(cgroup.Config{Mount: dir, Root: "r", HugePages: []int64{2 << 20}})
	p := pod(corev1.PodQOSBestEffort, "hugepages-2Mi=4Mi")
	if err := m.Create(p); err != nil {
		t.Fatal(err)
	}
	expect(t, filepath.Join(dir, "unified", m.Parent(p), "hugetlb.2MB.max"), "4194304")
	expect(t, filepath.Join(dir, "unified/r/cgroup.subtree_control"), "+hugetlb")
	expect(t, filepath.Join(dir, "cpu", m.Parent(p), "cpu.shares"), "2")
}

func TestMissingControllersAreReportedIfNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		pids int64
		want string
	}{
		"nothing needed": {pod(corev1.PodQOSBestEffort, ""), -1, ""},
		"pids":           {pod(corev1.PodQOSBestEffort, ""), 9, "the kernel has no cgroup controller pids here"},
		"all": {pod(corev1.PodQOSGuaranteed, "1/1Mi/hugepages-2Mi=2Mi"), 9,
			"the kernel has no cgroup controller memory, pids, hugetlb here"},
	} {
		for kind, dir := range map[string]string{"v1": tree(t, "", "cpu"), "v2": tree(t, "cpu")} {
			m := cgroup.New(cgroup.Config{Mount: dir, Root: "r", MaxPIDs: c.pids, HugePages: []int64{2 << 20}})
			err := m.Create(c.pod)
			if got := errorText(err); got != c.want {
				t.Errorf("%s on %s: %s", name, kind, got)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "[mph]*")); len(left) > 0 {
				t.Errorf("%s on %s: created folders that are not cgroups: %v", name, kind, left)
			}
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := tree(t, "", "cpu", "memory", "blkio")
	m := manager(dir)
	p := pod(corev1.PodQOSBurstable, "")
	for _, h := range []string{"cpu", "memory", "blkio"} {
		if err := os.MkdirAll(filepath.Join(dir, h, m.Parent(p), "container"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.Close() // keeps cgroups with containers
	if got := m.Pods(); !slices.Equal(got, []types.UID{"u-1"}) {
		t.Errorf("pods: %v", got)
	}
	unknown := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u-1"}} // only the UID is known
	if err := m.Remove(unknown); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", m.Parent(p)))
	if len(left) != 0 || len(m.Pods()) != 0 {
		t.Errorf("cgroups left: %v, pods: %v", left, m.Pods())
	}
	if err := m.Remove(p); err != nil {
		t.Errorf("second removal: %v", err)
	}
	m.Close()
	if left, _ = filepath.Glob(filepath.Join(dir, "*", "r")); len(left) != 0 {
		t.Errorf("cgroups left: %v", left)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	dir := tree(t, "", "cpu", "memory")
	put(t, dir, map[string]string{})
	for _, path := range []string{"cpu/r-1/kubepods/podu", "memory/r_1.slice/r_1-kubepods.slice", "cpu/other"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := cgroup.Discard(dir, "/r-1"); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	if want := []string{filepath.Join(dir, "cpu/other")}; !slices.Equal(left, want) {
		t.Errorf("cgroups left: %v, want %v", left, want)
	}
}
