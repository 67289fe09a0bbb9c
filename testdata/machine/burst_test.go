package machine_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"monopod/testdata/harness"
)

const (
	// burstPods are created at once.
	burstPods = 20
	// burstPatience is how long they may take in the smallest cgroup.
	burstPatience = 5 * time.Minute
)

// BenchmarkBurst creates pods at once while Monopod, its containerd, the shims and the network plugins are together in one
// cgroup: without a limit of memory, and with a small one. The pods' own processes are in cgroups of their own. Beside
// the time until all of them run and are gone, it reports the longest of the GETs that ran one after the other meanwhile. It runs
// once, whatever -benchtime is.
func BenchmarkBurst(b *testing.B) {
	harness.NeedsContainerd(b)
	for _, mb := range []int{0, 160, 128} {
		b.Run(fmt.Sprintf("MB=%d", mb), func(b *testing.B) {
			harness.Once(b, func(b *testing.B) { benchmarkBurst(b, mb) })
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchmarkBurst(b *testing.B, mb int) {
	group := newMemoryGroup(b, mb)
	s := group.launch(b)
	s.runtime(b) // the image is there
	time.Sleep(2 * time.Second)
	name := func(n int) string { return fmt.Sprintf("burst-%d", n) }
	from := time.Now()
	go atOnce(b, burstPods, func(n int) error { return s.send(http.MethodPost, podPath, pod(name(n))) })
	gets := s.getUntil(b, "?fieldSelector=status.phase=Running", burstPods)
	b.ReportMetric(time.Since(from).Seconds(), "s/running")
	b.ReportMetric(group.peak(b), "MB-peak")
	time.Sleep(20 * time.Second)
	b.ReportMetric(group.used(b), "MB-with-pods")
	from = time.Now()
	go atOnce(b, burstPods, func(n int) error { return s.send(http.MethodDelete, podPath+"/"+name(n), "") })
	gets = append(gets, s.getUntil(b, "", 0)...)
	b.ReportMetric(time.Since(from).Seconds(), "s/gone")
	slices.Sort(gets)
	b.ReportMetric(float64(gets[len(gets)-1].Milliseconds()), "ms/slowest-GET")
	b.ReportMetric(float64(gets[len(gets)*99/100].Milliseconds()), "ms/p99-GET")
	b.ReportMetric(float64(group.killed(b)), "killed")
}

// getUntil lists pods until there are n, and returns how long each GET took.
func (s *server) getUntil(b *testing.B, query string, n int) (took []time.Duration) {
	b.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		from := time.Now()
		code, list := s.Get(podPath + query)
		took = append(took, time.Since(from))
		if code == http.StatusOK && strings.Count(list, `"uid"`) == n {
			return took
		}
		if time.Since(began) > burstPatience || !s.Running() {
			b.Fatalf("%d of %d pods after %s, code %d", strings.Count(list, `"uid"`), n, time.Since(began), code)
		}
	}
}

// memoryGroup is the folder of a cgroup whose memory may be limited, of the first or the second version.
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
		b.Skipf("skipped: no cgroup can be created: %v", err)
	}
	b.Cleanup(func() {
		if !harness.Eventually(10*time.Second, func() bool { return os.Remove(g.dir) == nil }) {
			b.Logf("%s is still in use", g.dir)
		}
	})
	if mb == 0 {
		return g
	}
	file := "memory.max"
	if g.v1 {
		file = "memory.limit_in_bytes"
	}
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.Itoa(mb<<20)), 0o600); err != nil {
		b.Skipf("skipped: the memory of a cgroup cannot be limited: %v", err)
	}
	return g
}

// launch starts a server whose processes are in the group from the beginning.
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
	s := &server{Server: harness.NewServer(script, dir, "--node-name", "node1", "--runtime=containerd")}
	b.Cleanup(func() {
		s.CleanUp(true)
		os.RemoveAll(dir)
	})
	s.Start()
	if err := s.Ready(); err != nil {
		b.Fatal(err)
	}
	return s
}

// peak is the most memory that the group has used, in MB, pages of files included.
func (g memoryGroup) peak(b *testing.B) float64 {
	return g.megabytes(b, "memory.max_usage_in_bytes", "memory.peak")
}

// used is what it uses now.
func (g memoryGroup) used(b *testing.B) float64 {
	return g.megabytes(b, "memory.usage_in_bytes", "memory.current")
}

func (g memoryGroup) megabytes(b *testing.B, first, second string) float64 {
	b.Helper()
	text := g.read(b, first, second)
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		b.Fatal(err)
	}
	return n / (1 << 20)
}

func (g memoryGroup) read(b *testing.B, first, second string) string {
	b.Helper()
	file := second
	if g.v1 {
		file = first
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// killed is how many processes of the group the kernel has killed for lack of memory.
func (g memoryGroup) killed(b *testing.B) (n int) {
	b.Helper()
	_, rest, _ := strings.Cut(g.read(b, "memory.oom_control", "memory.events"), "oom_kill ")
	if fields := strings.Fields(rest); len(fields) > 0 {
		n, _ = strconv.Atoi(fields[0])
	}
	return n
}
