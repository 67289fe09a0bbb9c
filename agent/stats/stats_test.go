package stats_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/stats"
)

// runtime is a runtime whose containers have used half a CPU since their start.
type runtime struct {
	began map[string]time.Time // by pod/container
	ended string               // the container that has terminated
	none  bool
	asked int
}

func (r *runtime) ListContainerStats(context.Context, *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	r.asked++
	if r.none {
		return nil, status.Error(codes.Unimplemented, "none")
	}
	var out []*cri.ContainerStats
	for name, began := range r.began {
		pod, c, _ := strings.Cut(name, "/")
		out = append(out, &cri.ContainerStats{
			Attributes: &cri.ContainerAttributes{Id: name, Metadata: &cri.ContainerMetadata{},
				Labels: map[string]string{"io.kubernetes.pod.uid": pod, "io.kubernetes.container.name": c}},
			Cpu:           &cri.CpuUsage{UsageCoreNanoSeconds: &cri.UInt64Value{Value: uint64(time.Since(began) / 2)}},
			Memory:        &cri.MemoryUsage{WorkingSetBytes: &cri.UInt64Value{Value: 5 << 20}},
			WritableLayer: &cri.FilesystemUsage{UsedBytes: &cri.UInt64Value{Value: 1 << 20}},
		})
	}
	return out, nil
}

func (r *runtime) ImageFsInfo(context.Context) (*cri.ImageFsInfoResponse, error) {
	return nil, status.Error(codes.Unimplemented, "none")
}

// source returns a Source with the pods "a" and "b" and the containers of rt.
func source(t *testing.T, rt *runtime) (*stats.Source, string) {
	t.Helper()
	dir := t.TempDir()
	pods := func() []stats.Pod {
		var out []stats.Pod
		for _, name := range []string{"b", "a"} {
			p := stats.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				UID: types.UID(name)}}, Started: map[string]time.Time{}, LogDir: filepath.Join(dir, "logs"), Dir: dir}
			p.Spec.Volumes = []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			for id, began := range rt.began {
				if strings.HasPrefix(id, name+"/") && id != rt.ended {
					p.Started[id] = began
					p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: strings.TrimPrefix(id, name+"/")})
				}
			}
			out = append(out, p)
		}
		return out
	}
	return stats.New(
		stats.Config{Node: "n1", Runtime: rt, Clock: clock.RealClock{}, Pods: pods, Dir: dir, ImageRoot: dir}), dir
}

func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{began: map[string]time.Time{"a/c": time.Now(), "a/d": time.Now()}}
		time.Sleep(time.Minute)
		s, _ := source(t, rt)
		for range 3 { // the first call takes two samples; the others use them
			start := time.Now()
			node, pods, err := s.Metrics(t.Context(), map[string]string{"l": "v"})
			if err != nil || len(pods) != 1 || pods[0].Name != "a" || node.Labels["l"] != "v" {
				t.Fatalf("node %+v, pods %+v, error %v", node, pods, err)
			}
			for i, name := range []string{"c", "d"} {
				c := pods[0].Containers[i]
				if c.Name != name || c.Usage.Cpu().MilliValue() != 500 || c.Usage.Memory().Value() != 5<<20 {
					t.Errorf("usage of container %s: %+v", name, c)
				}
			}
			if w := time.Since(start); w > 500*time.Millisecond {
				t.Errorf("Metrics took %v", w)
			}
			time.Sleep(10 * time.Second)
		}
		rt.began["b/new"] = time.Now()
		time.Sleep(2 * time.Second)
		_, pods, err := s.Metrics(t.Context(), nil)
		if err != nil || len(pods) != 2 || pods[1].Containers[0].Usage.Cpu().MilliValue() != 500 {
			t.Errorf("with a container that has just started: %+v, error %v", pods, err)
		}
		asked := rt.asked
		for range 10 {
			if _, pods, err := s.Metrics(t.Context(), nil); err != nil || len(pods) != 2 {
				t.Errorf("pods %+v, error %v", pods, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if rt.asked != asked {
			t.Errorf("%d calls of the runtime within a second, want none", rt.asked-asked)
		}
		time.Sleep(time.Hour)
		if rt.asked != asked {
			t.Error("Source called the runtime without a request")
		}
	})
}

// The first request for CPU and memory waits until there are rates.
func TestShortSummaryHasRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := source(t, &runtime{began: map[string]time.Time{"a/c": time.Now()}})
		time.Sleep(time.Minute)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w,
			httptest.NewRequestWithContext(t.Context(), "GET", "/stats/summary?only_cpu_and_memory=true", nil))
		if strings.Count(w.Body.String(), `"usageNanoCores":500000000`) != 2 { // of the pod and its container
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// The statistics of a pod do not contain terminated containers, even if the runtime still reports them.
func TestTerminatedContainersHaveNoUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{began: map[string]time.Time{"a/c": time.Now(), "a/init": time.Now()}, ended: "a/init"}
		s, _ := source(t, rt)
		time.Sleep(10 * time.Second)
		_, pods, err := s.Metrics(t.Context(), nil)
		if err != nil || len(pods) != 1 || len(pods[0].Containers) != 1 || pods[0].Containers[0].Name != "c" {
			t.Errorf("pods %+v, error %v", pods, err)
		}
		summary, err := s.Summary(t.Context(), false)
		if err != nil || len(summary.Pods[1].Containers) != 1 || summary.Pods[1].Containers[0].Name != "c" {
			t.Errorf("summary %+v, error %v", summary, err)
		}
	})
}

func TestNoStatistics(t *testing.T) {
	t.Parallel()
	s, dir := source(t, &runtime{none: true})
	if _, _, err := s.Metrics(t.Context(), nil); !errors.Is(err, stats.ErrNoStatistics) {
		t.Errorf("Metrics returned %v, want ErrNoStatistics", err)
	}
	summary, err := s.Summary(t.Context(), false)
	if err != nil || summary.Node.NodeName != "n1" || *summary.Node.Memory.WorkingSetBytes == 0 ||
		*summary.Node.CPU.UsageCoreNanoSeconds == 0 || len(summary.Pods) != 0 {
		t.Errorf("summary %+v, error %v", summary, err)
	}
	fill(t, filepath.Join(dir, "volumes/kubernetes.io~empty-dir/v/file"), 1<<16)
	disks, err := s.Disks(t.Context(), func(p *corev1.Pod) bool { return p.Name == "a" })
	if err != nil || len(disks) != 1 || disks["a"].Volumes["v"] < 1<<16 {
		t.Errorf("disk usage %+v, error %v", disks, err)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	s, dir := source(t, &runtime{began: map[string]time.Time{"a/c": time.Now()}})
	fill(t, filepath.Join(dir, "volumes/kubernetes.io~empty-dir/v/file"), 1<<16)
	fill(t, filepath.Join(dir, "logs/c/0.log"), 1<<16)
	summary, err := s.Summary(t.Context(), false)
	if err != nil || len(summary.Pods) != 2 {
		t.Fatalf("summary %+v, error %v", summary, err)
	}
	p := summary.Pods[1]
	if p.PodRef.Name != "a" || *p.Memory.WorkingSetBytes != 5<<20 || len(p.Containers) != 1 ||
		*p.Containers[0].Rootfs.UsedBytes != 1<<20 || *p.Containers[0].Logs.UsedBytes < 1<<16 {
		t.Errorf("statistics of the pod: %+v", p)
	}
	if v := p.VolumeStats[0]; v.Name != "v" || *v.UsedBytes < 1<<16 || *v.CapacityBytes == 0 ||
		*p.EphemeralStorage.UsedBytes < 1<<20+2<<16 {
		t.Errorf("volume %+v, ephemeral storage %+v", v, p.EphemeralStorage)
	}
}

func TestForPrometheus(t *testing.T) {
	t.Parallel()
	s, _ := source(t, &runtime{began: map[string]time.Time{"a/c": time.Now()}})
	for path, want := range map[string][]string{
		"/metrics/resource": {`container_memory_working_set_bytes{container="c",namespace="default",pod="a"} 5.24288e+06`,
			"resource_scrape_error 0", "node_memory_working_set_bytes "},
		"/metrics/cadvisor": {`container_memory_working_set_bytes{container="c",id="poda/a/c",image="",name="a/c",` +
			`namespace="default",pod="a"} 5.24288e+06`, "machine_cpu_cores{",
			`container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""}`},
		"/stats/summary": {`"nodeName":"n1"`, `"podRef":{"name":"a","namespace":"default"`},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		for _, line := range want {
			if w.Code != 200 || !strings.Contains(w.Body.String(), line) {
				t.Errorf("%s has no %s: %d %s", path, line, w.Code, w.Body)
			}
		}
	}
}

func TestContainersWithoutStartTimeReportNone(t *testing.T) {
	t.Parallel()
	s, _ := source(
		t,
		&runtime{began: map[string]time.Time{"a/began": time.Unix(1000, 0), "a/not": {}, "a/zero": time.Unix(0, 0)}},
	)
	for path, id := range map[string]string{"/metrics/resource": "",
		"/metrics/cadvisor": `id="poda/a/began",image="",name="a/began",`} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		body, want := w.Body.String(), `container_start_time_seconds{container="began",`+id+
			`namespace="default",pod="a"} 1000`+"\n"
		if !strings.Contains(body, want) ||
			strings.Count(
				body,
				"\ncontainer_start_time_seconds{",
			)-strings.Count(
				body,
				`_start_time_seconds{container="",`,
			) != 1 ||
			!strings.Contains(body, `container="not"`) {
			t.Errorf("%s: want only the start time %s, got %s", path, want, body)
		}
	}
}

func TestSizeOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "a/one"), 1<<16)
	if err := os.Link(filepath.Join(dir, "a/one"), filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	size, err := stats.SizeOf(t.Context(), dir)
	if err != nil || size.Bytes < 1<<16 || size.Bytes > 2<<16 || size.Inodes != 4 {
		t.Errorf("size %+v, error %v", size, err)
	}
	if size, err := stats.SizeOf(t.Context(), dir+"/not"); err != nil || size.Bytes != 0 {
		t.Errorf("size of a missing folder: %+v, error %v", size, err)
	}
}

func fill(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
}
