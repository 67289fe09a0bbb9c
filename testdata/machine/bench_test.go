package machine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/store/bolt"
	"monopod/testdata/harness"
)

// launch starts monopod on a new folder and returns once the API is ready, with the time since exec.
func launch(b *testing.B, flags ...string) (*server, time.Duration) {
	b.Helper()
	return launchOn(b, func(string) error { return nil }, flags...)
}

// launchOn is launch with a data folder that prepare fills first.
func launchOn(b *testing.B, prepare func(dir string) error, flags ...string) (*server, time.Duration) {
	b.Helper()
	programs := harness.Build(b)
	dir, err := programs.NewFolder()
	if err == nil {
		err = prepare(dir)
	}
	if err != nil {
		b.Fatal(err)
	}
	s := &server{Server: harness.NewServer(programs.Monopod(harness.Plain), dir, append([]string{"--node-name", "node1", "--eviction-hard=memory.available<100Mi"}, flags...)...)}
	b.Cleanup(func() {
		s.CleanUp(slices.Contains(flags, "--runtime=containerd"))
		os.RemoveAll(dir)
	})
	from := time.Now()
	s.Start()
	for {
		if code, _ := s.Get("/readyz"); code == http.StatusOK {
			return s, time.Since(from)
		}
		if time.Since(from) > 10*time.Second || !s.Running() {
			b.Fatalf("monopod is not ready: %s", s.Log)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// BenchmarkReady measures exec to /readyz with an empty data folder; the lower bound is the time in which the
// same program prints its version.
func BenchmarkReady(b *testing.B) {
	harness.Build(b)
	var ready, version []time.Duration
	for b.Loop() {
		s, took := launch(b, "--runtime=fake")
		ready = append(ready, took)
		s.End(syscall.SIGTERM)
		from := time.Now()
		if err := exec.Command(s.Cmd.Path, "--version").Run(); err != nil {
			b.Fatal(err)
		}
		version = append(version, time.Since(from))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
	b.ReportMetric(p50(version), "ms/exec")
}

// storedPods is the number of pods with which BenchmarkReadyFull starts.
const storedPods = 10000

// BenchmarkReadyFull measures exec to /readyz with 10,000 pods in the data folder; the lower bound is the time
// for reading and decoding the same file.
func BenchmarkReadyFull(b *testing.B) {
	harness.Build(b)
	full := filepath.Join(b.TempDir(), "state.db")
	if err := fillState(b.Context(), full); err != nil {
		b.Fatal(err)
	}
	withState := func(dir string) error { return harness.CopyFile(filepath.Join(dir, "state.db"), full) }
	var ready []time.Duration
	for b.Loop() {
		s, took := launchOn(b, withState, "--runtime=fake", "--controllers=eventttl")
		ready = append(ready, took)
		b.ReportMetric(float64(harness.ProcNumber(b, s.Cmd.Process.Pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
		s.End(syscall.SIGTERM)
	}
	bare, err := decodeState(full)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
	b.ReportMetric(float64(bare.Microseconds())/1000, "ms/bare-decode")
}

// fillState creates a state file of pods as the API stores them.
func fillState(ctx context.Context, path string) error {
	resources := registry.Resources()
	s, err := bolt.Open(path, store.Config{Kind: registry.Kinds(resources)})
	if err != nil {
		return err
	}
	api := registry.New(s, resources, registry.Config{})
	err = api.Bootstrap(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for n := range storedPods {
		group.Go(func() error {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%05d", n), Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1"}}}}
			_, err := api.Create(groupCtx, p)
			return err
		})
	}
	return errors.Join(err, group.Wait(), s.Close())
}

// decodeState measures a program that only decodes the file's pods one after the other.
func decodeState(path string) (time.Duration, error) {
	from := time.Now()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("objects")).ForEach(func(_, v []byte) error {
			return json.Unmarshal(v[:len(v)-4], &corev1.Pod{}) // the checksum follows
		})
	})
	return time.Since(from), err
}

// BenchmarkIdle measures ten pods for an idle minute. It runs once, whatever -benchtime is.
func BenchmarkIdle(b *testing.B) {
	harness.Once(b, benchmarkIdle)
}

func benchmarkIdle(b *testing.B) {
	s := launchPods(b, 10)
	m := s.minute(b)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(m.rss, "MB-RSS")
	b.ReportMetric(m.anonymous, "MB-anonymous")
	b.ReportMetric(m.written, "bytes-written/min")
	b.ReportMetric(m.ticks/60, "%CPU") // 100 ticks a second
}

// BenchmarkIdleServices measures an idle minute with three pods, and another one with 200 Services of which these pods are
// the endpoints. It runs once, whatever -benchtime is.
func BenchmarkIdleServices(b *testing.B) {
	harness.Once(b, benchmarkIdleServices)
}

func benchmarkIdleServices(b *testing.B) {
	const services = 200
	s := launchPods(b, 3)
	time.Sleep(time.Minute) // memory of the start is returned
	before := s.minute(b)
	for i := range services {
		body := fmt.Sprintf(`{"metadata":{"name":"service-%d"},"spec":{"selector":{"app":"idle"},"ports":[{"port":80,"targetPort":8080}]}}`, i)
		if err := s.send(http.MethodPost, "/api/v1/namespaces/default/services", body); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(90 * time.Second)
	after := s.minute(b)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(before.ticks, "ticks/min-without")
	b.ReportMetric(after.ticks, "ticks/min")
	b.ReportMetric(after.written, "bytes-written/min")
	b.ReportMetric((after.anonymous-before.anonymous)*1024/services, "KB-anonymous/Service")
}

// launchPods starts a server on containerd, and so many pods.
func launchPods(b *testing.B, pods int) *server {
	b.Helper()
	harness.NeedsContainerd(b)
	harness.Build(b)
	s, _ := launch(b, "--runtime=containerd")
	for i := range pods {
		if err := s.send(http.MethodPost, podPath, pod(fmt.Sprintf("idle-%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	for s.countRunning(b) < pods {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(5 * time.Second)
	return s
}

// minuteOf is what a server used in a minute, and its memory after it in MB.
type minuteOf struct{ ticks, written, rss, anonymous float64 }

// minute measures a minute.
func (s *server) minute(b *testing.B) minuteOf {
	b.Helper()
	pid := s.Cmd.Process.Pid
	written, cpu := harness.ProcNumber(b, pid, "io", "write_bytes:"), cpuTicks(b, pid)
	time.Sleep(time.Minute)
	return minuteOf{
		float64(cpuTicks(b, pid) - cpu), float64(harness.ProcNumber(b, pid, "io", "write_bytes:") - written),
		float64(harness.ProcNumber(b, pid, "smaps_rollup", "Rss:")) / 1024, float64(harness.ProcNumber(b, pid, "smaps_rollup", "Anonymous:")) / 1024,
	}
}

func cpuTicks(b *testing.B, pid int) int64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return user + system
}

const podPath = "/api/v1/namespaces/default/pods"

func pod(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"idle"}},"spec":{"containers":[{"name":"c","image":"monopod.local/web:1"}]}}`, name)
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

func (s *server) countRunning(b *testing.B) int {
	b.Helper()
	_, list := s.Get(podPath + "?fieldSelector=status.phase=Running")
	return strings.Count(list, `"uid"`)
}
