package machine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/testdata/harness"
)

// events follows the pods until the benchmark ends.
func (s *server) events(b *testing.B) <-chan podEvent {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://x"+podPath+"?watch=1", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := s.HTTP().Do(req)
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

// untilEvents reads events until n pods match, and returns how long that took.
func untilEvents(b *testing.B, events <-chan podEvent, from time.Time, n int, fits func(podEvent) bool) time.Duration {
	b.Helper()
	for seen := map[string]bool{}; len(seen) < n; {
		select {
		case ev := <-events:
			if fits(ev) {
				seen[ev.Object.Name] = true
			}
		case <-time.After(30 * time.Second):
			b.Fatalf("%d of %d events came", len(seen), n)
		}
	}
	return time.Since(from)
}

// settle is the time for a program to set its signal handler, and for the machine to become idle.
const settle = 200 * time.Millisecond

// BenchmarkPodLife measures create to Running and delete to gone of concurrent pods, until the last, through the
// API, alternating with the bare CRI calls for as many pods: on the same containerd, with our network plugin, and on
// one with the plugins that Kubernetes' installations use.
func BenchmarkPodLife(b *testing.B) {
	harness.NeedsContainerd(b)
	for _, c := range []struct{ pods, rounds int }{{1, 20}, {20, 8}, {100, 2}} {
		b.Run(fmt.Sprintf("pods=%d", c.pods), func(b *testing.B) { benchmarkPods(b, c.pods, c.rounds) })
	}
}

// benchmarkPods takes so many rounds, or fewer if -benchtime says so.
func benchmarkPods(b *testing.B, pods, rounds int) {
	s, _ := launch(b, "--runtime=containerd")
	events := s.events(b)
	bases := []*base{{name: "bare-CRI", rt: s.runtime(b)}, {name: "bare-CRI-stock-plugins", rt: stock(b)}}
	var start, stop []time.Duration
	harness.AtMost(b, rounds, func() {
		for _, base := range bases {
			up, down := bareLives(b, base.rt, pods)
			base.start, base.stop = append(base.start, up), append(base.stop, down)
		}
		up, down := s.lives(b, events, pods)
		start, stop = append(start, up), append(stop, down)
	})
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(p50(start), "ms/start")
	b.ReportMetric(p50(stop), "ms/delete")
	for _, base := range bases {
		b.ReportMetric(p50(base.start), "ms/start-"+base.name)
		b.ReportMetric(p50(base.stop), "ms/delete-"+base.name)
		b.ReportMetric(p50(start)/p50(base.start), "start-ratio-"+base.name)
		b.ReportMetric(p50(stop)/p50(base.stop), "delete-ratio-"+base.name)
	}
}

// base is a containerd whose bare CRI calls are the base of a ratio.
type base struct {
	name        string
	rt          *cri.Runtime
	start, stop []time.Duration
}

// stockPlugins is the folder of Debian's containernetworking-plugins.
const stockPlugins = "/usr/lib/cni"

// stock is a connection to another containerd, which runs the bridge, host-local, portmap and loopback plugins of
// containernetworking-plugins.
func stock(b *testing.B) *cri.Runtime {
	b.Helper()
	conf, local := "", b.TempDir()
	s, _ := launchOn(b, func(dir string) error {
		conf = filepath.Join(dir, "cni")
		err := os.MkdirAll(filepath.Join(conf, "net.d"), 0o700)
		return errors.Join(err, os.WriteFile(filepath.Join(conf, "net.d", "10-stock.conflist"), []byte(`{"cniVersion": "1.0.0", "name": "stock", "plugins": [
  {"type": "bridge", "bridge": "mp-stock", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "`+local+`", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.222.9.0/24"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}`), 0o600))
	}, "--runtime=containerd", "--oci-runtime=runc")
	b.Cleanup(func() {
		if link, err := netlink.LinkByName("mp-stock"); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	rt := s.runtime(b)
	loopback := filepath.Join(conf, "bin", "loopback") // ours, also with the network of a user
	if err := errors.Join(os.Remove(loopback), os.Symlink(filepath.Join(stockPlugins, "loopback"), loopback)); err != nil {
		b.Fatal(err)
	}
	return rt
}

// runtime is a connection to the containerd, once it has the image.
func (s *server) runtime(b *testing.B) *cri.Runtime {
	b.Helper()
	child, err := containerd.New(containerd.Config{DataDir: s.Dir, Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	rt, err := cri.New(cri.Config{Socket: child.Socket(), Log: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close() })
	for {
		if img, err := rt.ImageStatus(b.Context(), "monopod.local/web:1"); err == nil && img != nil {
			return rt
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lives runs pods through the API, concurrently.
func (s *server) lives(b *testing.B, events <-chan podEvent, pods int) (up, down time.Duration) {
	b.Helper()
	name := func(n int) string { return fmt.Sprintf("life-%d", n) }
	from := time.Now()
	go atOnce(b, pods, func(n int) error { return s.send(http.MethodPost, podPath, pod(name(n))) })
	up = untilEvents(b, events, from, pods, func(ev podEvent) bool { return ev.Object.Status.Phase == corev1.PodRunning })
	time.Sleep(settle)
	from = time.Now()
	go atOnce(b, pods, func(n int) error { return s.send(http.MethodDelete, podPath+"/"+name(n), "") })
	down = untilEvents(b, events, from, pods, func(ev podEvent) bool { return ev.Type == "DELETED" })
	time.Sleep(settle)
	return up, down
}

// atOnce does the work of all pods concurrently.
func atOnce(b *testing.B, pods int, work func(n int) error) {
	b.Helper()
	var group errgroup.Group
	for n := range pods {
		group.Go(func() error { return work(n) })
	}
	if err := group.Wait(); err != nil {
		b.Error(err)
	}
}

// bareLives runs pods like the benchmark's with only CRI calls.
func bareLives(b *testing.B, rt *cri.Runtime, pods int) (up, down time.Duration) {
	b.Helper()
	sandboxes, containers := make([]string, pods), make([]string, pods)
	logs := b.TempDir()
	from := time.Now()
	atOnce(b, pods, func(n int) (err error) {
		sandboxes[n], containers[n], err = bareStart(b.Context(), rt, n, logs)
		return err
	})
	up = time.Since(from)
	time.Sleep(settle)
	from = time.Now()
	atOnce(b, pods, func(n int) error { return bareStop(b.Context(), rt, sandboxes[n], containers[n]) })
	down = time.Since(from)
	time.Sleep(settle)
	return up, down
}

// ownProcesses is a PID namespace for each container, as pods have by default.
var ownProcesses = &criapi.NamespaceOption{Pid: criapi.NamespaceMode_CONTAINER}

func bareStart(ctx context.Context, rt *cri.Runtime, n int, logs string) (sandbox, container string, err error) {
	config := &criapi.PodSandboxConfig{
		Metadata:     &criapi.PodSandboxMetadata{Name: fmt.Sprintf("bare-%d", n), Namespace: "bare", Uid: fmt.Sprintf("bare-%d", n)},
		LogDirectory: logs,
		DnsConfig:    &criapi.DNSConfig{},
		Linux: &criapi.LinuxPodSandboxConfig{
			CgroupParent:    "/monopod-bench",
			SecurityContext: &criapi.LinuxSandboxSecurityContext{NamespaceOptions: ownProcesses},
		},
	}
	if sandbox, err = rt.RunPodSandbox(ctx, config, ""); err != nil {
		return "", "", err
	}
	container, err = rt.CreateContainer(ctx, sandbox, &criapi.ContainerConfig{
		Metadata: &criapi.ContainerMetadata{Name: "c"},
		Image:    &criapi.ImageSpec{Image: "monopod.local/web:1"},
		LogPath:  fmt.Sprintf("c%d.log", n),
		Linux:    &criapi.LinuxContainerConfig{SecurityContext: &criapi.LinuxContainerSecurityContext{NamespaceOptions: ownProcesses}},
	}, config)
	if err != nil {
		return sandbox, "", err
	}
	return sandbox, container, rt.StartContainer(ctx, container)
}

func bareStop(ctx context.Context, rt *cri.Runtime, sandbox, container string) error {
	if err := rt.StopContainer(ctx, container, 30*time.Second); err != nil {
		return err
	}
	if err := rt.StopPodSandbox(ctx, sandbox); err != nil {
		return err
	}
	return rt.RemovePodSandbox(ctx, sandbox)
}

// manyPods is how many pods BenchmarkManyPods creates at once, in addition to fewPods that already run, so that
// the costs of the first pods do not count.
const manyPods, fewPods = 100, 10

// BenchmarkManyPods measures the memory for each of a hundred pods, and CPU in an idle minute. It runs once,
// whatever -benchtime is, for a quarter of an hour: until then old versions of objects are kept for watches.
func BenchmarkManyPods(b *testing.B) { harness.Once(b, benchmarkManyPods) }

func benchmarkManyPods(b *testing.B) {
	harness.NeedsContainerd(b)
	s, _ := launch(b, "--runtime=containerd")
	events := s.events(b)
	s.runtime(b)
	pid := s.Cmd.Process.Pid
	run := func(name string, pods int) {
		go atOnce(b, pods, func(n int) error { return s.send(http.MethodPost, podPath, pod(fmt.Sprintf("%s-%d", name, n))) })
		untilEvents(b, events, time.Now(), pods, func(ev podEvent) bool {
			return strings.HasPrefix(ev.Object.Name, name) && ev.Object.Status.Phase == corev1.PodRunning
		})
	}
	run("few", fewPods)
	time.Sleep(80 * time.Second) // memory of the start is returned by then
	rss, anonymous := restingMemory(b, pid)
	run("many", manyPods)
	time.Sleep(12 * time.Minute)
	written, cpu := harness.ProcNumber(b, pid, "io", "write_bytes:"), cpuTicks(b, pid)
	rssNow, anonymousNow := restingMemory(b, pid)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(cpuTicks(b, pid)-cpu)/60, "%CPU") // 100 ticks a second
	b.ReportMetric(float64(harness.ProcNumber(b, pid, "io", "write_bytes:")-written), "bytes-written/min")
	b.ReportMetric((rssNow-rss)/manyPods, "KB-RSS/pod")
	b.ReportMetric((anonymousNow-anonymous)/manyPods, "KB-anonymous/pod")
}

// restingMemory is the mean of a process' memory over a minute, in KB, because it varies within each minute.
func restingMemory(b *testing.B, pid int) (rss, anonymous float64) {
	b.Helper()
	const samples = 12
	for range samples {
		time.Sleep(time.Minute / samples)
		rss += float64(harness.ProcNumber(b, pid, "smaps_rollup", "Rss:")) / samples
		anonymous += float64(harness.ProcNumber(b, pid, "smaps_rollup", "Anonymous:")) / samples
	}
	return rss, anonymous
}
