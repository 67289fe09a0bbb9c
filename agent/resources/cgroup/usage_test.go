package cgroup_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/resources/cgroup"
)

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	want := cgroup.Usage{CPU: 2_000_000, Memory: 1000, WorkingSet: 700, RSS: 400, PageFaults: 5, MajorFault: 6,
		Processes: 3, Process: 42}
	const v2, at = "m/kubepods/burstable/podu-1/", "/m/kubepods/burstable/podu-1/"
	for name, files := range map[string]map[string]string{
		"v2": {
			"cgroup.controllers":    "cpu memory pids",
			v2 + "cpu.stat":         "usage_usec 2000\nuser_usec 1500\n",
			v2 + "memory.current":   "1000\n",
			v2 + "memory.stat":      "anon 400\ninactive_file 300\npgfault 5\npgmajfault 6\n",
			v2 + "pids.current":     "3\n",
			v2 + "c1/cgroup.procs":  "42\n43\n",
			v2 + "c1/memory.events": "",
		},
		"v1": {
			"cpuacct" + at + "cpuacct.usage":        "2000000\n",
			"memory" + at + "memory.usage_in_bytes": "1000\n",
			"memory" + at + "memory.stat": "rss 1\ntotal_rss 400\ntotal_inactive_file 300\ntotal_pgfault 5\n" +
				"total_pgmajfault 6\n",
			"memory" + at + "c1/cgroup.procs": "42\n",
			"pids" + at + "pids.current":      "3\n",
		},
	} {
		root := t.TempDir()
		put(t, root, files)
		if got, err := cgroup.New(cgroup.Config{Mount: root, Root: "m"}).Usage(pod(corev1.PodQOSBurstable)); err != nil ||
			got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got, err := cgroup.New(cgroup.Config{Mount: root, Root: "m"}).Usage(pod(corev1.PodQOSBestEffort)); err == nil {
			t.Errorf("%s: usage without a cgroup: %+v", name, got)
		}
	}
}

func TestOOMKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, map[string]string{
		"memory/r/podu/killed/memory.oom_control":            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		"memory/r/podu/fine/memory.oom_control":              "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
		"r/podu/killed2/memory.events":                       "low 0\noom 1\noom_kill 2\n",
		"r.slice/cri-containerd-killed3.scope/memory.events": "oom_kill 1\n",
	})
	for _, c := range []struct {
		parent, id string
		want       bool
	}{
		{"/r/podu", "killed", true}, {"/r/podu", "fine", false}, {"/r/podu", "killed2", true},
		{"/r.slice", "killed3", true}, {"/r/podu", "gone", false},
	} {
		if got := cgroup.OOMKilled(root, c.parent, c.id); got != c.want {
			t.Errorf("%s: OOM-killed %v", c.id, got)
		}
	}
}
