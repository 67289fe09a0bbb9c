package cgroup_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
	"monopod/agent/resources/cgroup"
)

func TestAccount(t *testing.T) {
	t.Parallel()
	n := func(n uint64) *uint64 { return &n }
	v2 := cgroup.Account{
		CPU: n(2_000_000), User: n(1_500_000), System: n(500_000), Periods: n(7), Throttled: n(3), ThrottledTime: n(40_000),
		Quota: n(20000), Period: n(100000), Memory: n(1000), WorkingSet: n(700), RSS: n(400), Cache: n(500), Mapped: n(50),
		Kernel: n(60), Swap: n(8),
		ActiveFile: n(200), InactiveFile: n(300), MaxUsage: n(1100), FailCount: n(2), PageFaults: n(5), MajorFaults: n(6),
		OOMKills:    n(1),
		MemoryLimit: n(4096), Reservation: n(0), SwapLimit: n(0), Processes: n(2), Threads: n(3), MaxTasks: n(0),
		IO: []cgroup.DeviceIO{{Device: "8:0", ReadBytes: 10, WriteBytes: 20, Reads: 1, Writes: 2}},
	}
	v1 := v2
	v2.Stalls = host.Stalls{
		CPU: &statsapi.PSIStats{Some: statsapi.PSIData{Avg10: 1.5, Avg60: 0.25, Avg300: 12, Total: 7_000_000}},
		IO:  &statsapi.PSIStats{Full: statsapi.PSIData{Total: 3000}, Some: statsapi.PSIData{Total: 4000}},
	}
	v1.Shares, v1.Kernel, v1.User, v1.System = n(102), n(60), n(30_000_000), n(10_000_000)
	root := map[string]string{}
	const at = "m/kubepods/burstable/podu-1/c1/"
	for name, text := range map[string]string{
		"cpu.stat":       "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\nnr_periods 7\nnr_throttled 3\nthrottled_usec 40\n",
		"cpu.max":        "20000 100000\n",
		"memory.current": "1000\n", "memory.stat": "anon 400\nfile 500\nfile_mapped 50\nkernel 60\nactive_file 200\n" +
			"inactive_file 300\npgfault 5\npgmajfault 6\n",
		"memory.swap.current": "8\n", "memory.peak": "1100\n", "memory.events": "max 2\noom_kill 1\n", "memory.max": "4096\n",
		"memory.min": "0\n", "memory.swap.max": "max\n",
		"pids.current": "3\n", "pids.max": "max\n", "cgroup.procs": "41\n42\n",
		"cpu.pressure": "some avg10=1.50 avg60=0.25 avg300=12.00 total=7000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"io.pressure":  "some avg10=0.00 avg60=0.00 avg300=0.00 total=4\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
		"io.stat":      "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n7:1\n",
	} {
		root[at+name] = text
	}
	root["cgroup.controllers"] = "cpu memory pids io"
	old := map[string]string{}
	for name, text := range map[string]string{
		"cpuacct cpuacct.usage": "2000000\n", "cpuacct cpuacct.stat": "user 3\nsystem 1\n",
		"cpu cpu.stat":   "nr_periods 7\nnr_throttled 3\nthrottled_time 40000\n",
		"cpu cpu.shares": "102\n", "cpu cpu.cfs_quota_us": "20000\n", "cpu cpu.cfs_period_us": "100000\n",
		"memory memory.usage_in_bytes": "1000\n", "memory memory.max_usage_in_bytes": "1100\n",
		"memory memory.failcnt": "2\n", "memory memory.kmem.usage_in_bytes": "60\n",
		"memory memory.stat": "rss 1\ntotal_rss 400\ntotal_cache 500\ntotal_mapped_file 50\ntotal_swap 8\n" +
			"total_active_file 200\ntotal_inactive_file 300\ntotal_pgfault 5\ntotal_pgmajfault 6\n",
		"memory memory.limit_in_bytes": "4096\n", "memory memory.soft_limit_in_bytes": "9223372036854771712\n",
		"memory memory.memsw.limit_in_bytes": "9223372036854771712\n",
		"memory memory.oom_control":          "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "memory cgroup.procs": "41\n42\n",
		"pids pids.current": "3\n", "pids pids.max": "max\n",
		"blkio blkio.throttle.io_service_bytes_recursive": "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n",
		"blkio blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
	} {
		var controller, file string
		for i := range name {
			if name[i] == ' ' {
				controller, file = name[:i], name[i+1:]
			}
		}
		old[controller+"/"+at+file] = text
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  cgroup.Account
	}{"v2": {root, v2}, "v1": {old, v1}} {
		dir := t.TempDir()
		put(t, dir, c.files)
		m := cgroup.New(cgroup.Config{Mount: dir, Root: "m"})
		p := pod(corev1.PodQOSBurstable)
		if got, ok := m.Account(m.ContainerPath(p, "c1")); !ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %s", name, differences(got, c.want))
		}
		if _, ok := m.Account(m.ContainerPath(p, "gone")); ok {
			t.Errorf("%s: a cgroup that does not exist has an account", name)
		}
	}
}

// Values that the kernel does not report are unknown, instead of 0.
func TestAccountOfFewControllers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, map[string]string{"cgroup.controllers": "", "a/cpu.stat": "usage_usec 2\n"})
	got, ok := cgroup.New(cgroup.Config{Mount: dir, Root: "a"}).Account("/a")
	if !ok || got.CPU == nil || *got.CPU != 2000 {
		t.Fatalf("account %+v, found %v", got, ok)
	}
	if got.CPU = nil; !reflect.DeepEqual(got, cgroup.Account{}) {
		t.Errorf("values without a file: %s", differences(got, cgroup.Account{}))
	}
}

func differences(got, want cgroup.Account) string {
	out := ""
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			out += " " + g.Type().Field(i).Name
		}
	}
	return "differs in" + out
}
