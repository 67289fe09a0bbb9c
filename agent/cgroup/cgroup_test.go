package cgroup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/cgroup"
)

func pod(qos corev1.PodQOSClass, limits ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}, Status: corev1.PodStatus{QOSClass: qos}}
	for _, l := range limits {
		c := corev1.Container{}
		if l != "" {
			cpu, memory, _ := strings.Cut(l, "/")
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
			c.Resources.Requests = c.Resources.Limits
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func TestParent(t *testing.T) {
	t.Parallel()
	m := cgroup.New(t.TempDir(), "monopod-1")
	for qos, want := range map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "/monopod-1/kubepods/podu1",
		corev1.PodQOSBurstable:  "/monopod-1/kubepods/burstable/podu1",
		corev1.PodQOSBestEffort: "/monopod-1/kubepods/besteffort/podu1",
	} {
		if got := m.Parent(pod(qos)); got != want {
			t.Errorf("%s: %s", qos, got)
		}
	}
}

// tree is a folder that looks like a cgroup mount.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, n := range names {
		if strings.Contains(n, ".") {
			if err := os.WriteFile(filepath.Join(dir, n), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Mkdir(filepath.Join(dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func expect(t *testing.T, path, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if want == "" && os.IsNotExist(err) {
		return
	}
	if err != nil || string(b) != want {
		t.Errorf("%s: %q, %v; want %q", filepath.Base(path), b, err, want)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod                   *corev1.Pod
		v1Shares, v1Quota     string
		memory, v2CPU, weight string
	}{
		"two limited":  {pod(corev1.PodQOSGuaranteed, "1/1Mi", "500m/2Mi"), "1536", "150000", "3145728", "150000 100000", "59"},
		"one may rest": {pod(corev1.PodQOSBurstable, "1/1Mi", ""), "1024", "", "", "", "39"},
		"none":         {pod(corev1.PodQOSBestEffort, ""), "2", "", "", "", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tree(t, "cpu", "memory", "pids")
			m := cgroup.New(dir, "r")
			if err := m.Create(c.pod); err != nil {
				t.Fatal(err)
			}
			expect(t, filepath.Join(dir, "cpu", m.Parent(c.pod), "cpu.shares"), c.v1Shares)
			expect(t, filepath.Join(dir, "cpu", m.Parent(c.pod), "cpu.cfs_quota_us"), c.v1Quota)
			expect(t, filepath.Join(dir, "memory", m.Parent(c.pod), "memory.limit_in_bytes"), c.memory)

			dir = tree(t, "cgroup.controllers")
			m = cgroup.New(dir, "r")
			if err := m.Create(c.pod); err != nil {
				t.Fatal(err)
			}
			expect(t, filepath.Join(dir, m.Parent(c.pod), "cpu.weight"), c.weight)
			expect(t, filepath.Join(dir, m.Parent(c.pod), "cpu.max"), c.v2CPU)
			expect(t, filepath.Join(dir, m.Parent(c.pod), "memory.max"), c.memory)
			expect(t, filepath.Join(dir, "cgroup.subtree_control"), "+pids")
		})
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := tree(t, "cpu", "memory", "blkio")
	m := cgroup.New(dir, "r")
	p := pod(corev1.PodQOSBurstable, "")
	for _, h := range []string{"cpu", "memory", "blkio"} {
		if err := os.MkdirAll(filepath.Join(dir, h, m.Parent(p), "container"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unknown := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}} // of which only the uid is known
	if err := m.Remove(unknown); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", m.Parent(p)))
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if err := m.Remove(p); err != nil {
		t.Errorf("removing what is gone: %v", err)
	}
	m.Close()
	if left, _ = filepath.Glob(filepath.Join(dir, "*", "r")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
