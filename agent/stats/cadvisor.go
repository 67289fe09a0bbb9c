package stats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/cgroup"
)

// Instance is a running container, or a pod's sandbox.
type Instance struct {
	ID      string
	Name    string // of the container; empty: it is the sandbox
	Image   string // empty: not known
	Started time.Time
}

// group is the usage of one cgroup in /metrics/cadvisor.
type group struct {
	cgroup.Account
	labels labels
	shares *uint64 // requested CPU shares, if the kernel has a weight
}

// cadvisor serves /metrics/cadvisor, with cAdvisor's names and kubelet's labels: the node has the id "/"; a pod has no
// container; its sandbox has no container but an image and a name; a container has all labels.
func (s *Source) cadvisor(w http.ResponseWriter, r *http.Request) {
	var e exposition
	s.machine(&e)
	failed := 0.0
	if err := s.root(&e); err != nil {
		failed = 1
	}
	if err := s.podGroups(r.Context(), &e); err != nil {
		failed = 1
	}
	e.put(gauge, "container_scrape_error", "1 if the usage cannot be read, else 0", failed, nil)
	e.serve(w, r)
}

// machine adds the metrics of the machine.
func (s *Source) machine(e *exposition) {
	info, err := host.Info()
	if err != nil {
		return
	}
	of := newLabels("boot_id", info.BootID, "machine_id", info.MachineID, "system_uuid", info.SystemUUID)
	e.put(gauge, "machine_cpu_cores", "Number of logical CPUs", float64(runtime.NumCPU()), of)
	if memory, err := host.Memory(); err == nil {
		e.put(gauge, "machine_memory_bytes", "Memory of the machine in bytes", float64(memory.Total), of)
	}
	e.put(gauge, "cadvisor_version_info", "Versions of the kernel and the operating system; always 1", 1, newLabels(
		"cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "", "kernelVersion", info.KernelVersion, "osVersion",
		info.OSImage))
}

// root adds the metrics of the node as a whole, with the id "/".
func (s *Source) root(e *exposition) error {
	u, err := host.ReadUsage()
	if err != nil {
		return err
	}
	l := newLabels("container", "", "id", "/", "image", "", "name", "", "namespace", "", "pod", "")
	group{labels: l,
		Account: cgroup.Account{CPU: &u.CPU, Memory: &u.Memory, WorkingSet: &u.WorkingSet, RSS: &u.RSS,
			Swap: &u.SwapUsed, Stalls: host.ReadStalls()}}.put(e, s.cfg.Clock.Now())
	e.start(time.Unix(int64(u.Booted), 0), l)
	if memory, err := host.Memory(); err == nil {
		e.put(gauge, specMemory, specMemoryHelp, float64(memory.Total), l)
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if lines, err := proc.NetDev(); err == nil {
			traffic(e, lines, l)
		}
	}
	devices := map[string]bool{}
	for _, dir := range []string{s.cfg.Dir, s.cfg.ImageRoot} {
		fileSystem(e, dir, l, devices)
	}
	return nil
}

// fileSystem adds the file system that contains dir, once.
func fileSystem(e *exposition, dir string, l labels, devices map[string]bool) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return
	}
	device := deviceName(fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	disk, err1 := host.Disk(dir)
	inodes, err2 := host.Inodes(dir)
	if devices[device] || errors.Join(err1, err2) != nil {
		return
	}
	devices[device] = true
	l = l.with("device", device)
	e.put(gauge, "container_fs_limit_bytes", "Size of the file system in bytes", float64(disk.Total), l)
	e.put(gauge, "container_fs_usage_bytes", "Bytes used on the file system", float64(disk.Total-disk.Free), l)
	e.put(gauge, "container_fs_inodes_total", "Number of inodes of the file system", float64(inodes.Total), l)
	e.put(gauge, "container_fs_inodes_free", "Number of free inodes of the file system", float64(inodes.Free), l)
}

// podGroups adds the pods with their sandboxes and containers, from their cgroups.
func (s *Source) podGroups(ctx context.Context, e *exposition) error {
	if s.cfg.Cgroups == nil {
		return s.runtimeGroups(ctx, e)
	}
	now := s.cfg.Clock.Now()
	for _, p := range s.cfg.Pods() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.podGroup(e, p, now)
	}
	return nil
}

func (s *Source) podGroup(e *exposition, p Pod, now time.Time) {
	parent := s.cfg.Cgroups.Parent(p.Pod)
	if account, ok := s.cfg.Cgroups.Account(parent); ok {
		account.OOMKills = nil // cgroup v1 does not count OOM kills in child cgroups
		shares := uint64(s.cfg.Cgroups.Shares(p.Pod))
		g := group{Account: account, shares: &shares,
			labels: newLabels("container", "", "id", parent, "image", "", "name", "", "namespace", p.Namespace, "pod", p.Name)}
		g.put(e, now)
		e.start(p.CreationTimestamp.Time, g.labels)
	}
	for _, i := range p.Instances {
		path := s.cfg.Cgroups.ContainerPath(p.Pod, i.ID)
		account, ok := s.cfg.Cgroups.Account(path)
		if !ok {
			continue // it may just have ended
		}
		g := group{Account: account, shares: sharesOf(p, i),
			labels: newLabels("container", i.Name, "id", path, "image", i.Image, "name", i.ID, "namespace", p.Namespace, "pod",
				p.Name)}
		g.put(e, now)
		e.start(i.Started, g.labels)
		if i.Name == "" && !p.Spec.HostNetwork {
			traffic(e, networkOf(s.cfg.Cgroups.Process(path)), g.labels)
		}
	}
}

// sharesOf returns the CPU shares of a container's request; nil for a sandbox.
func sharesOf(p Pod, i Instance) *uint64 {
	for _, c := range spec.Containers(&p.Spec) {
		if c.Name == i.Name {
			return new(uint64(spec.Shares(c.Resources.Requests.Cpu().MilliValue())))
		}
	}
	return nil
}

// runtimeGroups adds the containers with the runtime's statistics, if the agent does not manage the pods' cgroups.
func (s *Source) runtimeGroups(ctx context.Context, e *exposition) error {
	r, err := s.read(ctx)
	if errors.Is(err, ErrNoStatistics) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, p := range r.pods {
		u := r.cgroups[p.UID]
		whole := newLabels("container", "", "id", "pod"+string(p.UID), "image", "", "name", "", "namespace", p.Namespace,
			"pod", p.Name)
		group{labels: whole,
			Account: cgroup.Account{CPU: &u.CPU, Memory: &u.Memory, WorkingSet: &u.WorkingSet, RSS: &u.RSS}}.put(e, r.at)
		for _, c := range r.running(p) {
			image := ""
			if i := slices.IndexFunc(p.Instances, func(i Instance) bool { return i.ID == c.id }); i >= 0 {
				image = p.Instances[i].Image
			}
			l := newLabels("container", c.name, "id", "pod"+string(p.UID)+"/"+c.id, "image", image, "name", c.id, "namespace",
				p.Namespace, "pod", p.Name)
			cpu, working := c.cpu(), c.memory()
			a := cgroup.Account{CPU: &cpu, WorkingSet: &working}
			if m := c.stats.GetMemory(); m.GetUsageBytes() != nil {
				a.Memory, a.RSS = &m.UsageBytes.Value, new(m.GetRssBytes().GetValue())
			}
			group{labels: l, Account: a}.put(e, r.at)
			e.start(c.startedAt, l)
		}
	}
	return nil
}

const specMemory, specMemoryHelp = "container_spec_memory_limit_bytes", "Memory limit in bytes; 0: none"

// put adds all known values of a cgroup.
func (g group) put(e *exposition, now time.Time) {
	g.processors(e)
	g.memory(e)
	g.stalls(e)
	e.add(gauge, "container_processes", "Number of processes", g.Processes, 1, g.labels)
	e.add(gauge, "container_threads", "Number of threads", g.Threads, 1, g.labels)
	e.add(gauge, "container_threads_max", "Maximum number of threads; 0: no limit", g.MaxTasks, 1, g.labels)
	e.add(counter, "container_oom_events_total", "Number of processes killed because memory ran out", g.OOMKills, 1,
		g.labels)
	for _, d := range g.IO {
		l := g.labels.with("device", deviceName(d.Device))
		e.add(counter, "container_fs_reads_bytes_total", "Cumulative bytes read from the device", &d.ReadBytes, 1, l)
		e.add(counter, "container_fs_writes_bytes_total", "Cumulative bytes written to the device", &d.WriteBytes, 1, l)
		e.add(counter, "container_fs_reads_total", "Cumulative reads from the device", &d.Reads, 1, l)
		e.add(counter, "container_fs_writes_total", "Cumulative writes to the device", &d.Writes, 1, l)
	}
	e.put(gauge, "container_last_seen", "Time at which the usage was read, in seconds since 1970", float64(now.Unix()),
		g.labels)
}

func (g group) processors(e *exposition) {
	e.add(counter, "container_cpu_usage_seconds_total", "Cumulative CPU time", g.CPU, nano, g.labels.with("cpu", "total"))
	e.add(counter, "container_cpu_user_seconds_total", "Cumulative CPU time in user mode", g.User, nano, g.labels)
	e.add(counter, "container_cpu_system_seconds_total", "Cumulative CPU time in the kernel", g.System, nano, g.labels)
	e.add(gauge, "container_spec_cpu_period", "CFS period in microseconds", g.Period, 1, g.labels)
	shares := g.Shares
	if shares == nil {
		shares = g.shares
	}
	e.add(gauge, "container_spec_cpu_shares", "CPU shares", shares, 1, g.labels)
	if g.Quota == nil || *g.Quota == 0 { // like cAdvisor: no quota is enforced
		return
	}
	e.add(gauge, "container_spec_cpu_quota", "CFS quota in microseconds for each period", g.Quota, 1, g.labels)
	e.add(counter, "container_cpu_cfs_periods_total", "CFS periods in which the quota was enforced", g.Periods, 1,
		g.labels)
	e.add(counter, "container_cpu_cfs_throttled_periods_total", "CFS periods in which the quota was used up", g.Throttled,
		1, g.labels)
	e.add(counter, "container_cpu_cfs_throttled_seconds_total", "Cumulative time throttled because the quota was used up",
		g.ThrottledTime, nano, g.labels)
}

func (g group) memory(e *exposition) {
	e.add(gauge, "container_memory_usage_bytes", "Memory in use in bytes, page cache included", g.Memory, 1, g.labels)
	e.add(gauge, "container_memory_working_set_bytes", "Memory in use in bytes, without inactive page cache", g.WorkingSet,
		1, g.labels)
	e.add(gauge, "container_memory_rss", "Anonymous memory in bytes", g.RSS, 1, g.labels)
	e.add(gauge, "container_memory_cache", "Page cache in bytes", g.Cache, 1, g.labels)
	e.add(gauge, "container_memory_swap", "Swap in use in bytes", g.Swap, 1, g.labels)
	e.add(gauge, "container_memory_mapped_file", "Mapped files in bytes", g.Mapped, 1, g.labels)
	e.add(gauge, "container_memory_kernel_usage", "Memory of the kernel in bytes", g.Kernel, 1, g.labels)
	e.add(gauge, "container_memory_total_active_file_bytes", "Active page cache in bytes", g.ActiveFile, 1, g.labels)
	e.add(gauge, "container_memory_total_inactive_file_bytes", "Inactive page cache in bytes", g.InactiveFile, 1, g.labels)
	e.add(gauge, "container_memory_max_usage_bytes", "Maximum memory usage in bytes since the start", g.MaxUsage, 1,
		g.labels)
	e.add(counter, "container_memory_failcnt", "Number of times that the memory limit was reached", g.FailCount, 1,
		g.labels)
	if g.PageFaults != nil {
		of := g.labels.with("scope", "hierarchy")
		e.add(counter, "container_memory_failures_total", "Cumulative page faults", g.PageFaults, 1,
			of.with("failure_type", "pgfault"))
		e.add(counter, "container_memory_failures_total", "Cumulative page faults", g.MajorFaults, 1,
			of.with("failure_type", "pgmajfault"))
	}
	e.add(gauge, specMemory, specMemoryHelp, g.MemoryLimit, 1, g.labels)
	e.add(gauge, "container_spec_memory_reservation_limit_bytes", "Memory protected for the container, in bytes; 0: none",
		g.Reservation, 1, g.labels)
	e.add(gauge, "container_spec_memory_swap_limit_bytes", "Swap limit in bytes; 0: none", g.SwapLimit, 1, g.labels)
}

// stalls adds the pressure stall information, if the kernel has it.
func (g group) stalls(e *exposition) {
	add := func(resource string, psi *statsapi.PSIStats) {
		if psi == nil {
			return
		}
		e.add(counter, "container_pressure_"+resource+"_waiting_seconds_total",
			"Cumulative time in which some processes waited for this resource", &psi.Some.Total, nano, g.labels)
		e.add(counter, "container_pressure_"+resource+"_stalled_seconds_total",
			"Cumulative time in which all processes waited for this resource", &psi.Full.Total, nano, g.labels)
	}
	add("cpu", g.Stalls.CPU)
	add("memory", g.Stalls.Memory)
	add("io", g.Stalls.IO)
}

// networkOf reads the network statistics in the namespace of a process; nil if it has ended.
func networkOf(pid int) procfs.NetDev {
	if pid == 0 {
		return nil
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	lines, err := proc.NetDev()
	if err != nil {
		return nil
	}
	return lines
}

// traffic adds the statistics of every interface except loopback.
func traffic(e *exposition, lines procfs.NetDev, of labels) {
	for name, n := range lines {
		if name == "lo" {
			continue
		}
		l := of.with("interface", name)
		e.add(counter, "container_network_receive_bytes_total", "Cumulative bytes received", &n.RxBytes, 1, l)
		e.add(counter, "container_network_receive_packets_total", "Cumulative packets received", &n.RxPackets, 1, l)
		e.add(counter, "container_network_receive_packets_dropped_total", "Cumulative packets dropped while receiving",
			&n.RxDropped, 1, l)
		e.add(counter, "container_network_receive_errors_total", "Cumulative errors while receiving", &n.RxErrors, 1, l)
		e.add(counter, "container_network_transmit_bytes_total", "Cumulative bytes transmitted", &n.TxBytes, 1, l)
		e.add(counter, "container_network_transmit_packets_total", "Cumulative packets transmitted", &n.TxPackets, 1, l)
		e.add(counter, "container_network_transmit_packets_dropped_total", "Cumulative packets dropped while transmitting",
			&n.TxDropped, 1, l)
		e.add(counter, "container_network_transmit_errors_total", "Cumulative errors while transmitting", &n.TxErrors, 1, l)
	}
}

// deviceName returns a block device's path below /dev, or its number if it has none.
func deviceName(number string) string {
	target, err := os.Readlink("/sys/dev/block/" + number)
	if err != nil {
		return number
	}
	return "/dev/" + filepath.Base(target)
}
