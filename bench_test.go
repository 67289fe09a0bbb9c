package main_test

import (
	"bufio"
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
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/cri"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/store/bolt"
)

// buildFast builds what a user runs: monopod without the race detector, and the
// sample image.
func buildFast(b *testing.B) {
	b.Helper()
	static := []string{"CGO_ENABLED=0"}
	build(b, ".", static, "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(bin, "monopod"), ".")
	build(b, ".", static, "-o", filepath.Join(bin, "web"), "./testdata/web")
	command(b, ".", nil, "go", "run", "./testdata/web/pack", "-program", filepath.Join(bin, "web"), "-o", filepath.Join(bin, "web.tar"))
}

// launch starts monopod on a new folder and returns once the API is ready, with
// the time that took since exec.
func launch(b *testing.B, flags ...string) (*server, time.Duration) {
	b.Helper()
	return launchOn(b, "", flags...)
}

// launchOn is launch with a copy of a state file; "": with none.
func launchOn(b *testing.B, state string, flags ...string) (*server, time.Duration) {
	b.Helper()
	dir, err := os.MkdirTemp("", "mp")
	if err != nil {
		b.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := copyFile(filepath.Join(dir, "images", "web.tar"), filepath.Join(bin, "web.tar")); err != nil {
		b.Fatal(err)
	}
	if state != "" {
		if err := copyFile(filepath.Join(dir, "state.db"), state); err != nil {
			b.Fatal(err)
		}
	}
	s := newServer(dir, append([]string{"--node-name", "node1"}, flags...))
	b.Cleanup(func() {
		s.cleanUp(slices.Contains(flags, "--runtime=containerd"))
		os.RemoveAll(dir)
	})
	from := time.Now()
	s.start()
	for {
		if code, _ := s.get("/readyz"); code == http.StatusOK {
			return s, time.Since(from)
		}
		if time.Since(from) > 10*time.Second || !s.running() {
			b.Fatalf("monopod is not ready: %s", s.log)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Microseconds()) / 1000
}

// BenchmarkReady is exec to /readyz with an empty data folder; the limit is the
// time the same program takes to print its version.
func BenchmarkReady(b *testing.B) {
	buildFast(b)
	var ready, version []time.Duration
	for b.Loop() {
		s, took := launch(b, "--runtime=fake")
		ready = append(ready, took)
		s.end(syscall.SIGTERM)
		from := time.Now()
		if err := exec.Command(filepath.Join(bin, "monopod"), "--version").Run(); err != nil {
			b.Fatal(err)
		}
		version = append(version, time.Since(from))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
	b.ReportMetric(p50(version), "ms/exec")
}

// storedPods is how many pods BenchmarkReadyFull starts with.
const storedPods = 10000

// BenchmarkReadyFull is exec to /readyz with 10,000 pods in the data folder; the
// limit is the time it takes to read the same file and to decode what is in it.
func BenchmarkReadyFull(b *testing.B) {
	buildFast(b)
	full := filepath.Join(b.TempDir(), "state.db")
	if err := fillState(b.Context(), full); err != nil {
		b.Fatal(err)
	}
	var ready []time.Duration
	for b.Loop() {
		s, took := launchOn(b, full, "--runtime=fake", "--controllers=eventttl")
		ready = append(ready, took)
		b.ReportMetric(float64(procNumber(b, s.cmd.Process.Pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
		s.end(syscall.SIGTERM)
	}
	bare, err := decodeState(full)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(ready), "ms/ready")
	b.ReportMetric(float64(bare.Microseconds())/1000, "ms/bare-decode")
}

// fillState makes a state file of pods as the API stores them.
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

// decodeState is how long a program takes that does nothing but read the file's
// pods one after the other.
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

// BenchmarkIdle runs ten pods for a minute without anything to do. It runs once,
// whatever -benchtime says.
func BenchmarkIdle(b *testing.B) {
	needsContainerd(b)
	buildFast(b)
	s, _ := launch(b, "--runtime=containerd")
	for i := range 10 {
		s.post(b, podPath, pod(fmt.Sprintf("idle-%d", i)))
	}
	for s.countRunning(b) < 10 {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(5 * time.Second)
	pid := s.cmd.Process.Pid
	written, cpu := procNumber(b, pid, "io", "write_bytes:"), cpuTicks(b, pid)
	time.Sleep(time.Minute)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(procNumber(b, pid, "smaps_rollup", "Rss:"))/1024, "MB-RSS")
	b.ReportMetric(float64(procNumber(b, pid, "smaps_rollup", "Anonymous:"))/1024, "MB-anonymous")
	b.ReportMetric(float64(procNumber(b, pid, "io", "write_bytes:")-written), "bytes-written/min")
	b.ReportMetric(float64(cpuTicks(b, pid)-cpu)/60, "%CPU") // 100 ticks a second
}

// procNumber reads the number behind a label in /proc/PID/file.
func procNumber(b *testing.B, pid int, file, label string) int64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), label)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
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
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"monopod.local/web:1"}]}}`, name)
}

func (s *server) send(b *testing.B, method, path, body string) {
	b.Helper()
	req, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		b.Fatalf("%s %s: %s", method, path, resp.Status)
	}
}

func (s *server) post(b *testing.B, path, body string) {
	b.Helper()
	s.send(b, http.MethodPost, path, body)
}

func (s *server) countRunning(b *testing.B) int {
	b.Helper()
	_, list := s.get(podPath + "?fieldSelector=status.phase=Running")
	return strings.Count(list, `"uid"`)
}

// events follows the pods until the benchmark ends.
func (s *server) events(b *testing.B) <-chan podEvent {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://x"+podPath+"?watch=1", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := s.http().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan podEvent, 1024)
	go func() {
		defer resp.Body.Close()
		for dec := json.NewDecoder(bufio.NewReader(resp.Body)); ; {
			var ev podEvent
			if dec.Decode(&ev) != nil {
				return
			}
			out <- ev
		}
	}()
	return out
}

type podEvent struct {
	Type   string
	Object corev1.Pod
}

// until reads events until one fits, and says how long that took.
func untilEvent(b *testing.B, events <-chan podEvent, from time.Time, fits func(podEvent) bool) time.Duration {
	b.Helper()
	for {
		select {
		case ev := <-events:
			if fits(ev) {
				return time.Since(from)
			}
		case <-time.After(30 * time.Second):
			b.Fatal("the event never came")
		}
	}
}

// BenchmarkPodLife is a pod's create to Running and delete to gone, seen through
// the API, beside the bare CRI calls that takes, on the same containerd, in turn.
func BenchmarkPodLife(b *testing.B) {
	needsContainerd(b)
	buildFast(b)
	s, _ := launch(b, "--runtime=containerd")
	child, err := cri.NewChild(cri.ChildConfig{DataDir: s.dir, Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	rt, err := cri.New(cri.Config{Socket: child.Socket(), Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	defer rt.Close()
	for {
		if img, err := rt.ImageStatus(b.Context(), "monopod.local/web:1"); err == nil && img != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	events := s.events(b)
	var start, stop, bareStart, bareStop []time.Duration
	for n := 0; b.Loop(); n++ {
		up, down := bareLife(b, rt, n)
		bareStart, bareStop = append(bareStart, up), append(bareStop, down)

		name := fmt.Sprintf("life-%d", n)
		from := time.Now()
		s.post(b, podPath, pod(name))
		start = append(start, untilEvent(b, events, from, func(ev podEvent) bool {
			return ev.Object.Name == name && ev.Object.Status.Phase == corev1.PodRunning
		}))
		time.Sleep(200 * time.Millisecond) // the program has to set its signal handler
		from = time.Now()
		s.send(b, http.MethodDelete, podPath+"/"+name, "")
		stop = append(stop, untilEvent(b, events, from, func(ev podEvent) bool {
			return ev.Object.Name == name && ev.Type == "DELETED"
		}))
		time.Sleep(200 * time.Millisecond)
	}
	b.ReportMetric(0, "ns/op")
	report := func(what string, api, bare float64) {
		b.ReportMetric(api, "ms/"+what)
		b.ReportMetric(bare, "ms/"+what+"-bare-CRI")
		b.ReportMetric(api/bare, what+"-ratio")
	}
	report("start", p50(start), p50(bareStart))
	report("delete", p50(stop), p50(bareStop))
}

// bareLife runs a pod like the benchmark's with nothing but CRI calls.
func bareLife(b *testing.B, rt *cri.Runtime, n int) (up, down time.Duration) {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	sandbox := &criapi.PodSandboxConfig{
		Metadata:     &criapi.PodSandboxMetadata{Name: fmt.Sprintf("bare-%d", n), Namespace: "bare", Uid: fmt.Sprintf("bare-%d", n)},
		LogDirectory: b.TempDir(),
		DnsConfig:    &criapi.DNSConfig{},
		Linux:        &criapi.LinuxPodSandboxConfig{CgroupParent: "/monopod-bench"},
	}
	container := &criapi.ContainerConfig{
		Metadata: &criapi.ContainerMetadata{Name: "c"},
		Image:    &criapi.ImageSpec{Image: "monopod.local/web:1"},
		LogPath:  "c.log", Linux: &criapi.LinuxContainerConfig{},
	}
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	from := time.Now()
	pod, err := rt.RunPodSandbox(ctx, sandbox)
	check(err)
	id, err := rt.CreateContainer(ctx, pod, container, sandbox)
	check(err)
	check(rt.StartContainer(ctx, id))
	up = time.Since(from)
	time.Sleep(200 * time.Millisecond)
	from = time.Now()
	check(rt.StopContainer(ctx, id, 30*time.Second))
	check(rt.StopPodSandbox(ctx, pod))
	check(rt.RemovePodSandbox(ctx, pod))
	down = time.Since(from)
	time.Sleep(200 * time.Millisecond)
	return up, down
}
