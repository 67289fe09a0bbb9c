package machine_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod/testdata/harness"
)

const (
	// burstPods is the number of pods that are created at once.
	burstPods = 20
	// burstPatience is the timeout for all pods.
	burstPatience = 5 * time.Minute
)

// BenchmarkBurst creates and deletes pods at once, while Monopod, its containerd, the shims and the network plugins
// share one cgroup of 128 MB. The processes of the pods are in other cgroups. The benchmark reports the times until all
// pods are Running and all are deleted, and the slowest of the GETs that it sends meanwhile, one after the other. It
// runs once, regardless of -benchtime.
func BenchmarkBurst(b *testing.B) {
	harness.NeedsContainerd(b)
	harness.Once(b, func(b *testing.B) {
		group := newMemoryGroup(b, 128)
		s := group.launch(b)
		name := func(n int) string { return fmt.Sprintf("burst-%d", n) }
		life := func(pods int) (up, down time.Duration, slowest time.Duration) {
			from := time.Now()
			go atOnce(b, pods, func(n int) error { return s.send(http.MethodPost, podPath, pod(name(n))) })
			slowest = s.getUntil(b, running, pods)
			up = time.Since(from)
			time.Sleep(settle)
			from = time.Now()
			go atOnce(b, pods, func(n int) error { return s.send(http.MethodDelete, podPath+"/"+name(n), "") })
			slowest = max(slowest, s.getUntil(b, "", 0))
			return up, time.Since(from), slowest
		}
		life(1) // imports the image
		up, down, slowest := life(burstPods)
		b.ReportMetric(float64(up.Milliseconds()), "ms/running")
		b.ReportMetric(float64(down.Milliseconds()), "ms/gone")
		b.ReportMetric(float64(slowest.Milliseconds()), "ms/slowest-GET")
		b.ReportMetric(float64(group.killed(b)), "killed")
	})
}

// getUntil lists pods until there are n, and returns the duration of the slowest GET.
func (s *server) getUntil(b *testing.B, query string, n int) (slowest time.Duration) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		from := time.Now()
		code, list := s.Get(podPath + query)
		slowest = max(slowest, time.Since(from))
		if code == http.StatusOK && strings.Count(list, `"uid"`) == n {
			return slowest
		}
		if time.Since(began) > burstPatience || !s.Running() {
			b.Fatalf("%d of %d pods after %s, code %d", strings.Count(list, `"uid"`), n, time.Since(began), code)
		}
	}
}

// memoryGroup is the folder of a cgroup with a memory limit, in version 1 or 2.
type memoryGroup struct {
	dir string
	v1  bool
}

func newMemoryGroup(b *testing.B, mb int) memoryGroup {
	b.Helper()
	g := memoryGroup{dir: "/sys/fs/cgroup/memory", v1: true}
	if _, err := os.Stat(g.dir); err != nil {
		g = memoryGroup{dir: "/sys/fs/cgroup"}
	}
	g.dir = filepath.Join(g.dir, fmt.Sprintf("monopod-burst-%d", os.Getpid()))
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		b.Skipf("skipped: cannot create a cgroup: %v", err)
	}
	b.Cleanup(func() {
		if !harness.Eventually(10*time.Second, func() bool { return os.Remove(g.dir) == nil }) {
			b.Logf("%s is still in use", g.dir)
		}
	})
	file := "memory.max"
	if g.v1 {
		file = "memory.limit_in_bytes"
	}
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.Itoa(mb<<20)), 0o600); err != nil {
		b.Skipf("skipped: cannot limit the memory of a cgroup: %v", err)
	}
	return g
}

// launch starts a server in the cgroup.
func (g memoryGroup) launch(b *testing.B) *server {
	b.Helper()
	programs := harness.Build(b)
	dir, err := programs.NewFolder()
	if err != nil {
		b.Fatal(err)
	}
	script := filepath.Join(b.TempDir(), "monopod")
	text := fmt.Sprintf("#!/bin/sh\necho $$ >%s/cgroup.procs\nexec %s \"$@\"\n", g.dir, programs.Monopod(harness.Plain))
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		b.Fatal(err)
	}
	s, _ := launchOn(b, script, dir, "--runtime=containerd")
	return s
}

// killed returns the number of OOM kills in the cgroup.
func (g memoryGroup) killed(b *testing.B) (n int) {
	b.Helper()
	file := "memory.events"
	if g.v1 {
		file = "memory.oom_control"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "oom_kill ")
	if fields := strings.Fields(rest); len(fields) > 0 {
		n, _ = strconv.Atoi(fields[0])
	}
	return n
}
