package stats_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/agent/resources/cgroup"
	"monopod/agent/stats"
)

// kernels are the cgroup files of each version; %s is the pod's folder.
var kernels = map[string]map[string]string{
	"v2": {
		"cgroup.controllers": "cpu memory pids io",
		"%s/cpu.stat":        "usage_usec 9000000\n", "%s/cpu.max": "max 100000\n", "%s/memory.current": "900\n",
		"%s/memory.stat": "inactive_file 100\n", "%s/memory.events": "oom_kill 1\n",
		"%s/s1/cpu.stat": "usage_usec 1000000\n", "%s/s1/cpu.max": "max 100000\n",
		"%s/c1/cpu.stat":       "usage_usec 8000000\nnr_periods 70\nnr_throttled 30\nthrottled_usec 4000000\n",
		"%s/c1/cpu.max":        "20000 100000\n",
		"%s/c1/memory.current": "800\n", "%s/c1/memory.stat": "anon 400\nfile 300\nfile_mapped 50\ninactive_file 100\n" +
			"pgfault 5\npgmajfault 6\n",
		"%s/c1/memory.swap.current": "8\n", "%s/c1/memory.peak": "1100\n", "%s/c1/memory.events": "max 2\noom_kill 1\n",
		"%s/c1/memory.max": "4096\n", "%s/c1/memory.min": "0\n", "%s/c1/memory.swap.max": "max\n",
		"%s/c1/pids.current": "3\n", "%s/c1/pids.max": "max\n", "%s/c1/cgroup.procs": "41\n42\n",
		"%s/c1/io.stat": "999:0 rbytes=10 wbytes=20 rios=1 wios=2\n",
	},
	"v1": {
		"cpuacct/%s/cpuacct.usage": "9000000000\n", "cpu/%s/cpu.cfs_quota_us": "-1\n",
		"memory/%s/memory.usage_in_bytes": "900\n", "memory/%s/memory.stat": "total_inactive_file 100\n",
		"memory/%s/memory.oom_control": "oom_kill 0\n",
		"cpuacct/%s/s1/cpuacct.usage":  "1000000000\n", "cpu/%s/s1/cpu.cfs_quota_us": "-1\n",
		"cpuacct/%s/c1/cpuacct.usage": "8000000000\n",
		"cpu/%s/c1/cpu.stat":          "nr_periods 70\nnr_throttled 30\nthrottled_time 4000000000\n",
		"cpu/%s/c1/cpu.cfs_quota_us":  "20000\n", "cpu/%s/c1/cpu.cfs_period_us": "100000\n", "cpu/%s/c1/cpu.shares": "102\n",
		"memory/%s/c1/memory.usage_in_bytes": "800\n", "memory/%s/c1/memory.max_usage_in_bytes": "1100\n",
		"memory/%s/c1/memory.failcnt": "2\n", "memory/%s/c1/memory.limit_in_bytes": "4096\n",
		"memory/%s/c1/memory.soft_limit_in_bytes":  "9223372036854771712\n",
		"memory/%s/c1/memory.memsw.limit_in_bytes": "9223372036854771712\n",
		"memory/%s/c1/memory.stat": "total_rss 400\ntotal_cache 300\ntotal_mapped_file 50\ntotal_swap 8\n" +
			"total_inactive_file 100\ntotal_pgfault 5\ntotal_pgmajfault 6\n",
		"memory/%s/c1/memory.oom_control": "oom_kill 1\n", "memory/%s/c1/cgroup.procs": "41\n42\n",
		"pids/%s/c1/pids.current": "3\n", "pids/%s/c1/pids.max": "max\n",
		"blkio/%s/c1/blkio.throttle.io_service_bytes_recursive": "999:0 Read 10\n999:0 Write 20\nTotal 30\n",
		"blkio/%s/c1/blkio.throttle.io_serviced_recursive":      "999:0 Read 1\n999:0 Write 2\nTotal 3\n",
	},
}

// mounted creates the cgroup files of a pod. This process is in the cgroup of its sandbox s1.
func mounted(t testing.TB, version string, pod *corev1.Pod) *cgroup.Manager {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, strings.ReplaceAll(name, "%s", "m/kubepods/burstable/pod"+string(pod.UID)))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range kernels[version] {
		write(name, text)
	}
	procs := "%s/s1/cgroup.procs"
	if version == "v1" {
		procs = "memory/" + procs
	}
	write(procs, fmt.Sprintln(os.Getpid()))
	return cgroup.New(cgroup.Config{Mount: root, Root: "m"})
}

func measuredPod() stats.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u-1", CreationTimestamp: metav1.Unix(900, 0)},
	}
	pod.Spec.Containers = []corev1.Container{
		{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}},
	}
	return stats.Pod{Pod: pod, Instances: []stats.Instance{
		{
			ID:      "s1",
			Image:   "pause:1",
			Started: time.Unix(950, 0),
		}, {ID: "c1", Name: "c", Image: "web:1", Started: time.Unix(1000, 0)}, {ID: "ended", Name: "d"},
	}}
}

// silent is a runtime that must not be called.
type silent struct{ stats.Runtime }

func scrape(t testing.TB, m *cgroup.Manager, pods []stats.Pod) string {
	t.Helper()
	s := stats.New(
		stats.Config{
			Node:      "n1",
			Runtime:   silent{},
			Cgroups:   m,
			Clock:     clock.RealClock{},
			Dir:       t.TempDir(),
			ImageRoot: t.TempDir(),
			Pods:      func() []stats.Pod { return pods },
		},
	)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/metrics/cadvisor", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestCadvisor(t *testing.T) {
	t.Parallel()
	const dir = "/m/kubepods/burstable/podu-1"
	whole := `container="",id="` + dir + `",image="",name="",namespace="default",pod="a"}`
	sandbox := `container="",id="` + dir + `/s1",image="pause:1",name="s1",namespace="default",pod="a"}`
	inside := `id="` + dir + `/c1",image="web:1",name="c1",namespace="default",pod="a"}`
	in := `container="c",` + inside
	want := []string{
		`container_cpu_usage_seconds_total{container="",cpu="total",id="` + dir +
			`",image="",name="",namespace="default",pod="a"} 9`,
		`container_cpu_usage_seconds_total{container="",cpu="total",id="` + dir +
			`/s1",image="pause:1",name="s1",namespace="default",pod="a"} 1`,
		`container_cpu_usage_seconds_total{container="c",cpu="total",` + inside + ` 8`,
		`container_memory_working_set_bytes{` + whole + ` 800`, `container_start_time_seconds{` + whole + ` 900`,
		`container_start_time_seconds{` + sandbox + ` 950`,
		`container_cpu_cfs_periods_total{` + in + ` 70`, `container_cpu_cfs_throttled_periods_total{` + in + ` 30`,
		`container_cpu_cfs_throttled_seconds_total{` + in + ` 4`,
		`container_spec_cpu_period{` + in + ` 100000`, `container_spec_cpu_quota{` + in + ` 20000`,
		`container_spec_cpu_shares{` + in + ` 102`,
		`container_memory_usage_bytes{` + in + ` 800`, `container_memory_working_set_bytes{` + in + ` 700`,
		`container_memory_rss{` + in + ` 400`, `container_memory_cache{` + in + ` 300`,
		`container_memory_swap{` + in + ` 8`, `container_memory_mapped_file{` + in + ` 50`,
		`container_memory_max_usage_bytes{` + in + ` 1100`, `container_memory_failcnt{` + in + ` 2`,
		`container_memory_failures_total{container="c",failure_type="pgmajfault",id="` + dir +
			`/c1",image="web:1",name="c1",namespace="default",pod="a",scope="hierarchy"} 6`,
		`container_spec_memory_limit_bytes{` + in + ` 4096`, `container_spec_memory_reservation_limit_bytes{` + in + ` 0`,
		`container_spec_memory_swap_limit_bytes{` + in + ` 0`,
		`container_oom_events_total{` + in + ` 1`, `container_processes{` + in + ` 2`, `container_threads{` + in + ` 3`,
		`container_threads_max{` + in + ` 0`,
		`container_start_time_seconds{` + in + ` 1000`, `container_last_seen{` + in + ` `,
		`container_fs_reads_bytes_total{container="c",device="999:0",` + inside + ` 10`,
		`container_fs_writes_bytes_total{container="c",device="999:0",` + inside + ` 20`,
		`container_fs_reads_total{container="c",device="999:0",` + inside + ` 1`,
		`container_fs_writes_total{container="c",device="999:0",` + inside + ` 2`,
		`container_memory_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""} `,
		`container_fs_limit_bytes{container="",device="`,
		"machine_cpu_cores{boot_id=", "machine_memory_bytes{boot_id=",
		`cadvisor_version_info{cadvisorRevision="",cadvisorVersion="",dockerVersion="",kernelVersion="`,
		"container_scrape_error 0",
	}
	for version := range kernels {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pod := measuredPod()
			body := scrape(t, mounted(t, version, pod.Pod), []stats.Pod{pod})
			for _, line := range want {
				if !strings.Contains(body, "\n"+line) {
					t.Errorf("missing %s in\n%s", line, body)
				}
			}
			for _, line := range []string{ // no values that the kernel does not report, and no limits that it does not enforce
				`container_cpu_cfs_periods_total{container="",`, `container_spec_cpu_quota{container="",`,
				`container_oom_events_total{` + whole, `name="ended"`,
			} {
				if strings.Contains(body, line) {
					t.Errorf("unexpected %s in\n%s", line, body)
				}
			}
		})
	}
}

// With cgroup v2, metrics and the summary contain the pressure stall information (PSI) of the kernel.
func TestPSI(t *testing.T) {
	t.Parallel()
	const text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=4000000\n" +
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\n"
	for version := range kernels {
		pod := measuredPod()
		pod.Started = map[string]time.Time{"u-1/c": time.Unix(1000, 0)}
		m := mounted(t, version, pod.Pod)
		for _, file := range []string{"memory.pressure", "c1/io.pressure", "u-1/c/cpu.pressure"} {
			path := filepath.Join(m.Mount, m.Parent(pod.Pod), file)
			if version == "v1" {
				continue
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		body := scrape(t, m, []stats.Pod{pod})
		for _, line := range []string{
			`container_pressure_io_waiting_seconds_total{container="c",id="/m/kubepods/burstable/podu-1/c1",image="web:1",` +
				`name="c1",namespace="default",pod="a"} 4`,
			`container_pressure_memory_stalled_seconds_total{container="",id="/m/kubepods/burstable/podu-1",image="",name="",` +
				`namespace="default",pod="a"} 3`,
		} {
			if strings.Contains(body, "\n"+line) != (version == "v2") {
				t.Errorf("%s: only v2 must have %s in\n%s", version, line, body)
			}
		}
		s := stats.New(stats.Config{Runtime: &runtime{began: map[string]time.Time{"u-1/c": time.Unix(1000, 0)}}, Cgroups: m,
			Clock: clock.RealClock{}, Dir: t.TempDir(), ImageRoot: t.TempDir(),
			Pods: func() []stats.Pod { return []stats.Pod{pod} }})
		summary, err := s.Summary(t.Context(), true)
		if err != nil || len(summary.Pods[0].Containers) != 1 {
			t.Fatalf("summary %+v, error %v", summary, err)
		}
		pods, c := summary.Pods[0], summary.Pods[0].Containers[0]
		if pods.IO != nil || c.IO != nil || pods.CPU.PSI != nil || c.Memory.PSI != nil {
			t.Errorf("%s: PSI that the kernel does not report: %+v %+v", version, pods, c)
		}
		if version == "v2" && (pods.Memory.PSI.Full.Total != 3e9 || c.CPU.PSI.Some.Avg10 != 1.5) {
			t.Errorf("%s: PSI of memory %+v, of CPU %+v", version, pods.Memory.PSI, c.CPU.PSI)
		}
		if version == "v1" && (pods.Memory.PSI != nil || c.CPU.PSI != nil) {
			t.Errorf("%s: PSI of memory %+v, of CPU %+v", version, pods.Memory.PSI, c.CPU.PSI)
		}
	}
}

// The network metrics of a pod are those of its sandbox. A pod on the host network has none.
func TestCadvisorNetwork(t *testing.T) {
	t.Parallel()
	lines, err := os.ReadFile("/proc/net/dev")
	if err != nil || strings.Count(string(lines), ":") < 2 {
		t.Skip("skipped: loopback is the only interface of this machine")
	}
	for _, host := range []bool{false, true} {
		pod := measuredPod()
		pod.Spec.HostNetwork = host
		body := scrape(t, mounted(t, "v2", pod.Pod), []stats.Pod{pod})
		for _, name := range []string{"receive_bytes", "receive_packets", "receive_packets_dropped", "receive_errors",
			"transmit_bytes", "transmit_packets", "transmit_packets_dropped", "transmit_errors"} {
			has := 0
			for line := range strings.Lines(body) {
				if strings.HasPrefix(
					line,
					"container_network_"+name+`_total{container="",id="/m/kubepods/burstable/podu-1/s1",image="pause:1",interface="`,
				) &&
					strings.Contains(line, `,name="s1",namespace="default",pod="a"} `) {
					has++
				}
			}
			if has > 0 == host {
				t.Errorf("host network %v: %d series of %s in\n%s", host, has, name, body)
			}
		}
	}
}

func BenchmarkCadvisor(b *testing.B) {
	pod := measuredPod()
	m := mounted(b, "v1", pod.Pod)
	var pods []stats.Pod
	for range 100 {
		pods = append(pods, pod)
	}
	for b.Loop() {
		scrape(b, m, pods)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pods := []stats.Pod{
		{
			Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}},
			Claims: []stats.Claim{
				{Volume: "v", Name: "db", Dir: dir},
				{Volume: "w", Name: "device", Dir: "/dev/null"},
				{Volume: "x", Name: "gone", Dir: dir + "/gone"},
			},
		},
		{
			Pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}},
			Claims: []stats.Claim{{Volume: "other", Name: "db", Dir: dir}},
		},
	}
	s := stats.New(stats.Config{Clock: clock.RealClock{}, Pods: func() []stats.Pod { return pods }})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s.Volumes())
	families, err := reg.Gather()
	if err != nil || len(families) != 6 {
		t.Fatalf("metrics %v, error %v", families, err)
	}
	for _, f := range families {
		if m := f.GetMetric(); len(m) != 1 || m[0].Label[0].GetValue() != "shop" || m[0].Label[1].GetValue() != "db" ||
			m[0].Label[1].GetName() != "persistentvolumeclaim" {
			t.Errorf("unexpected metrics of volumes: %v", f)
		}
	}
}
