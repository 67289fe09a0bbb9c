package stats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
	"monopod/agent/resources/cgroup"
)

// Summary returns the whole summary. With cpuAndMemory it omits disks and networks, and walks no folders.
func (s *Source) Summary(ctx context.Context, cpuAndMemory bool) (*statsapi.Summary, error) {
	return s.summary(ctx, cpuAndMemory, false)
}

// summary is Summary. With wait, CPU usage is never unknown because it is the first sample.
func (s *Source) summary(ctx context.Context, cpuAndMemory, wait bool) (*statsapi.Summary, error) {
	now, from, err := s.sample(ctx, wait)
	if err != nil && !errors.Is(err, ErrNoStatistics) {
		return nil, err
	}
	if now == nil { // the node's usage does not need the runtime
		used, err := host.ReadUsage()
		if err != nil {
			return nil, err
		}
		now = &reading{at: s.cfg.Clock.Now(), node: used, sums: map[string]uint64{nodeKey: used.CPU}}
	}
	out := &statsapi.Summary{Node: s.nodeStats(now, from), Pods: []statsapi.PodStats{}}
	if !cpuAndMemory {
		s.nodeDisks(ctx, &out.Node, metav1.NewTime(now.at))
	}
	for _, p := range now.pods {
		stats := podStats(now, from, p)
		s.podStalls(now, p, &stats)
		if !cpuAndMemory {
			if err := s.podDisks(ctx, now, p, &stats, out.Node.Fs); err != nil {
				return nil, err
			}
			stats.Network = podNetwork(now, p)
		}
		out.Pods = append(out.Pods, stats)
	}
	return out, nil
}

func (s *Source) nodeStats(now, from *reading) statsapi.NodeStats {
	at, u := metav1.NewTime(now.at), &now.node
	out := statsapi.NodeStats{
		NodeName: s.cfg.Node, StartTime: metav1.NewTime(time.Unix(int64(u.Booted), 0)),
		CPU: now.cpuStats(from, nodeKey, time.Time{}),
		Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: new(u.Available), UsageBytes: new(u.Memory),
			WorkingSetBytes: new(u.WorkingSet), RSSBytes: new(u.RSS)},
		Swap: &statsapi.SwapStats{Time: at, SwapUsageBytes: new(u.SwapUsed), SwapAvailableBytes: new(u.SwapFree)},
	}
	out.IO = addStalls(host.ReadStalls(), at, out.CPU, out.Memory)
	return out
}

// podStalls adds the pressure stall information of the pod and its containers.
func (s *Source) podStalls(now *reading, p Pod, out *statsapi.PodStats) {
	if s.cfg.Cgroups == nil {
		return
	}
	at := metav1.NewTime(now.at)
	out.IO = addStalls(s.cfg.Cgroups.Stalls(s.cfg.Cgroups.Parent(p.Pod)), at, out.CPU, out.Memory)
	for _, c := range now.running(p) {
		i := slices.IndexFunc(out.Containers, func(o statsapi.ContainerStats) bool { return o.Name == c.name })
		o := &out.Containers[i]
		o.IO = addStalls(s.cfg.Cgroups.Stalls(s.cfg.Cgroups.ContainerPath(p.Pod, c.id)), at, o.CPU, o.Memory)
	}
}

// addStalls adds the pressure stall information of CPU and memory, and returns that of I/O.
func addStalls(of host.Stalls, at metav1.Time, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats) *statsapi.IOStats {
	cpu.PSI, memory.PSI = of.CPU, of.Memory
	if of.IO == nil {
		return nil
	}
	return &statsapi.IOStats{Time: at, PSI: of.IO}
}

func (r *reading) cpuStats(from *reading, key string, startedAt time.Time) *statsapi.CPUStats {
	out := &statsapi.CPUStats{Time: metav1.NewTime(r.at), UsageCoreNanoSeconds: new(r.sums[key])}
	if rate, ok := r.rate(from, key, startedAt); ok {
		out.UsageNanoCores = &rate
	}
	return out
}

// nodeDisks adds file systems, processes and network of the node.
func (s *Source) nodeDisks(ctx context.Context, out *statsapi.NodeStats, at metav1.Time) {
	out.Fs = filesystem(s.cfg.Dir, at)
	root, used := s.cfg.ImageRoot, (*Size)(nil)
	if info, err := s.cfg.Runtime.ImageFsInfo(ctx); err == nil && len(info.ImageFilesystems) > 0 {
		fs := info.ImageFilesystems[0]
		root, used = cmp.Or(fs.GetFsId().GetMountpoint(), root),
			&Size{fs.GetUsedBytes().GetValue(), fs.GetInodesUsed().GetValue()}
	}
	images := filesystem(root, at)
	if images != nil && used != nil {
		images = within(images, *used)
	}
	out.Runtime = &statsapi.RuntimeStats{ImageFs: images, ContainerFs: images}
	if pids, err := host.PIDs(); err == nil {
		out.Rlimit = &statsapi.RlimitStats{Time: at, MaxPID: new(pids.Total),
			NumOfRunningProcesses: new(pids.Total - pids.Free)}
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if lines, err := proc.NetDev(); err == nil {
			out.Network = network(lines, at)
		}
	}
}

func podStats(now, from *reading, p Pod) statsapi.PodStats {
	at, u := metav1.NewTime(now.at), now.cgroups[p.UID]
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		CPU:        now.cpuStats(from, podKey(p.UID), p.CreationTimestamp.Time),
		Memory:     memoryStats(at, u),
		Containers: []statsapi.ContainerStats{},
	}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	if u.Processes > 0 {
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: new(u.Processes)}
	}
	for _, c := range now.running(p) {
		out.Containers = append(out.Containers, containerStats(now, from, c))
	}
	slices.SortFunc(out.Containers, func(a, b statsapi.ContainerStats) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func memoryStats(at metav1.Time, u cgroup.Usage) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{
		Time: at, UsageBytes: new(u.Memory), WorkingSetBytes: new(u.WorkingSet), RSSBytes: new(u.RSS),
		PageFaults: new(u.PageFaults), MajorPageFaults: new(u.MajorFault),
	}
}

func containerStats(now, from *reading, c *container) statsapi.ContainerStats {
	m := c.stats.GetMemory()
	out := statsapi.ContainerStats{
		Name: c.name, StartTime: metav1.NewTime(c.startedAt), CPU: now.cpuStats(from, c.id, c.startedAt),
		Memory: memoryStats(metav1.NewTime(now.at), cgroup.Usage{
			Memory: m.GetUsageBytes().GetValue(), WorkingSet: c.memory(), RSS: m.GetRssBytes().GetValue(),
			PageFaults: m.GetPageFaults().GetValue(), MajorFault: m.GetMajorPageFaults().GetValue(),
		}),
	}
	if left := m.GetAvailableBytes(); left.GetValue() > 0 { // containerd: 0 without a limit
		out.Memory.AvailableBytes = new(left.Value)
	}
	if swap := c.stats.GetSwap(); swap.GetSwapUsageBytes() != nil {
		out.Swap = &statsapi.SwapStats{Time: metav1.NewTime(now.at), SwapUsageBytes: new(swap.SwapUsageBytes.Value)}
	}
	return out
}

// podDisks adds disk usage; fs is the file system of the pod's folder.
func (s *Source) podDisks(ctx context.Context, now *reading, p Pod, out *statsapi.PodStats,
	fs *statsapi.FsStats) error {
	d, err := s.diskOf(ctx, now, p)
	if err != nil {
		return err
	}
	for _, c := range now.running(p) {
		i := slices.IndexFunc(out.Containers, func(o statsapi.ContainerStats) bool { return o.Name == c.name })
		out.Containers[i].Rootfs, out.Containers[i].Logs = within(fs, d.rootfs[c.name]), within(fs, d.logs[c.name])
	}
	for name, size := range d.volumes {
		out.VolumeStats = append(out.VolumeStats, statsapi.VolumeStats{Name: name, FsStats: *within(fs, size)})
	}
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	for _, c := range p.Claims {
		if fs, _ := s.sizesOf(ctx, c.Dir); fs != nil {
			ref := &statsapi.PVCReference{Name: c.Name, Namespace: p.Namespace}
			out.VolumeStats = append(out.VolumeStats, statsapi.VolumeStats{Name: c.Volume, PVCRef: ref, FsStats: *fs})
		}
	}
	slices.SortFunc(out.VolumeStats, func(a, b statsapi.VolumeStats) int { return cmp.Compare(a.Name, b.Name) })
	out.EphemeralStorage = within(fs, d.sum())
	return nil
}

// podNetwork returns the network statistics of one of the pod's processes; nil on the host network.
func podNetwork(now *reading, p Pod) *statsapi.NetworkStats {
	if p.Spec.HostNetwork {
		return nil
	}
	lines := networkOf(now.cgroups[p.UID].Process)
	if lines == nil {
		return nil
	}
	return network(lines, metav1.NewTime(now.at))
}

// network returns every interface except loopback. Like upstream, eth0 is the default interface.
func network(lines procfs.NetDev, at metav1.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: at}
	for name, l := range lines {
		if name == "lo" {
			continue
		}
		one := statsapi.InterfaceStats{Name: name, RxBytes: new(l.RxBytes), RxErrors: new(l.RxErrors),
			TxBytes: new(l.TxBytes), TxErrors: new(l.TxErrors)}
		if name == "eth0" {
			out.InterfaceStats = one
		}
		out.Interfaces = append(out.Interfaces, one)
	}
	slices.SortFunc(out.Interfaces, func(a, b statsapi.InterfaceStats) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
