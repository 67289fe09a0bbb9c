package machine_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// launch starts monopod with a new data folder, waits until the API is ready, and returns the time since exec.
func launch(b *testing.B, flags ...string) (*server, time.Duration) {
	b.Helper()
	programs := harness.Build(b)
	dir, err := programs.NewFolder()
	if err != nil {
		b.Fatal(err)
	}
	return launchOn(b, programs.Monopod(harness.Plain), dir, flags...)
}

// launchOn starts a program with a data folder.
func launchOn(b *testing.B, program, dir string, flags ...string) (*server, time.Duration) {
	b.Helper()
	s := &server{Server: harness.NewServer(program, dir,
		append([]string{"--node-name", "node1", "--eviction-hard=memory.available<100Mi"}, flags...)...)}
	stop := sync.OnceFunc(func() {
		s.CleanUp(slices.Contains(flags, "--runtime=containerd"))
		os.RemoveAll(dir)
	})
	b.Cleanup(stop)
	b.Cleanup(harness.Interrupted(stop))
	return s, s.start(b)
}

// start starts the program, waits until the API is ready, and returns the time since exec.
func (s *server) start(b *testing.B) time.Duration {
	b.Helper()
	from := time.Now()
	s.Start()
	for {
		if code, _ := s.Get("/readyz"); code == http.StatusOK {
			return time.Since(from)
		}
		if time.Since(from) > 30*time.Second || !s.Running() {
			b.Fatalf("monopod is not ready: %s", s.Log)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// BenchmarkReady measures exec to /readyz with an empty data folder.
func BenchmarkReady(b *testing.B) {
	harness.NeedsContainerd(b)
	harness.Build(b)
	var ready []time.Duration
	for b.Loop() {
		s, took := launch(b, "--runtime=containerd")
		ready = append(ready, took)
		s.End(syscall.SIGTERM)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
}

// BenchmarkReadyFull measures exec to /readyz with 10,000 pods in the data folder.
func BenchmarkReadyFull(b *testing.B) {
	// Only the controller eventttl runs: the pod garbage collector would delete pods of a node that does not exist.
	s, _ := launch(b, "--runtime=fake", "--controllers=eventttl")
	if err := grow(b.Context(), []*http.Client{s.HTTP()}, "http://x"+podPath, podElsewhere, 10_000); err != nil {
		b.Fatal(err)
	}
	var ready []time.Duration
	for b.Loop() {
		s.End(syscall.SIGTERM)
		ready = append(ready, s.start(b))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
	b.ReportMetric(float64(harness.ProcNumber(b, s.Cmd.Process.Pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
}

// BenchmarkIdle measures an idle minute with ten pods. It first waits for more than a minute, in which Go returns the
// memory of the start to the kernel. It runs once, regardless of -benchtime.
func BenchmarkIdle(b *testing.B) {
	harness.NeedsContainerd(b)
	harness.Once(b, func(b *testing.B) {
		const pods = 10
		s, _ := launch(b, "--runtime=containerd")
		for i := range pods {
			if err := s.send(http.MethodPost, podPath, pod(fmt.Sprintf("idle-%d", i))); err != nil {
				b.Fatal(err)
			}
		}
		s.getUntil(b, running, pods)
		time.Sleep(75 * time.Second)
		pid := s.Cmd.Process.Pid
		written, cpu := harness.ProcNumber(b, pid, "io", "write_bytes:"), s.CPU(b)
		time.Sleep(time.Minute)
		b.ReportMetric((s.CPU(b)-cpu).Seconds()/60*100, "%CPU")
		b.ReportMetric(float64(harness.ProcNumber(b, pid, "io", "write_bytes:")-written), "bytes-written/min")
		b.ReportMetric(float64(harness.ProcNumber(b, pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
		b.ReportMetric(float64(harness.ProcNumber(b, pid, "smaps_rollup", "Anonymous:"))/1024, "MB-anonymous")
	})
}

const (
	podPath = "/api/v1/namespaces/default/pods"
	running = "?fieldSelector=status.phase=Running"
)

func pod(name string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{"app":"idle"}},"spec":{"containers":[{"name":"c","image":"monopod.local/web:1"}]}}`,
		name)
}

func (s *server) send(method, path, body string) error {
	req, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.HTTP().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return nil
}
