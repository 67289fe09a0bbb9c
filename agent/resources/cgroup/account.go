package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
)

// Account contains the kernel's accounting of a cgroup with its child cgroups: total usage, current usage and limits.
// nil means that the kernel has no value. A limit of 0 means no limit.
type Account struct {
	CPU, User, System            *uint64 // ns
	Periods, Throttled           *uint64 // periods in which the CFS quota was enforced, and was reached
	ThrottledTime                *uint64 // ns
	Shares, Quota, Period        *uint64 // Shares: v1 only; µs
	Memory, WorkingSet, RSS      *uint64 // bytes, like the other memory values
	Cache, Swap, Mapped, Kernel  *uint64
	ActiveFile, InactiveFile     *uint64
	MaxUsage                     *uint64
	FailCount                    *uint64 // how often the limit was reached
	PageFaults, MajorFaults      *uint64
	OOMKills                     *uint64 // v1: without child cgroups
	MemoryLimit, Reservation     *uint64
	SwapLimit                    *uint64 // v1: of memory and swap together
	Processes, Threads, MaxTasks *uint64 // Processes: without child cgroups
	IO                           []DeviceIO
	Stalls                       host.Stalls // v2 only
}

// DeviceIO is the I/O of one block device.
type DeviceIO struct {
	Device                               string // major:minor
	ReadBytes, WriteBytes, Reads, Writes uint64
}

// ContainerPath returns the cgroup that runc creates for a container or sandbox of
// the pod, relative to the mount or the hierarchy.
func (m *Manager) ContainerPath(pod *corev1.Pod, id string) string {
	return filepath.Join(m.Parent(pod), containerFolder(m.Parent(pod), id))
}

// containerFolder returns the folder of a container below the parent cgroup that the
// runtime got.
func containerFolder(parent, container string) string {
	if strings.HasSuffix(parent, ".slice") {
		return "cri-containerd-" + container + ".scope"
	}
	return container
}

// Account reads the cgroup at path; false: there is none.
func (m *Manager) Account(path string) (Account, bool) {
	if m.v2 {
		return accountV2(filepath.Join(m.Mount, path))
	}
	return m.accountV1(path)
}

func accountV2(dir string) (Account, bool) {
	file := func(name string) string { return filepath.Join(dir, name) }
	var a Account
	cpu, err := pairs(file("cpu.stat"))
	if err != nil {
		return a, false
	}
	stat, _ := pairs(file("memory.stat")) // nil if the controller is disabled
	events, _ := pairs(file("memory.events"))
	a.CPU, a.User = scaledField(cpu, "usage_usec", 1000), scaledField(cpu, "user_usec", 1000)
	a.System, a.ThrottledTime = scaledField(cpu, "system_usec", 1000), scaledField(cpu, "throttled_usec", 1000)
	a.Periods, a.Throttled = field(cpu, "nr_periods"), field(cpu, "nr_throttled")
	a.Quota, a.Period = quotaV2(file("cpu.max"))
	a.Memory = readNumber(file("memory.current"))
	a.RSS, a.Cache = field(stat, "anon"), field(stat, "file")
	a.Mapped, a.Kernel = field(stat, "file_mapped"), field(stat, "kernel")
	a.ActiveFile, a.InactiveFile = field(stat, "active_file"), field(stat, "inactive_file")
	a.PageFaults, a.MajorFaults = field(stat, "pgfault"), field(stat, "pgmajfault")
	a.Swap, a.MaxUsage = readNumber(file("memory.swap.current")), readNumber(file("memory.peak"))
	a.FailCount, a.OOMKills = field(events, "max"), field(events, "oom_kill")
	a.MemoryLimit, a.Reservation, a.SwapLimit = readLimit(file("memory.max")), readLimit(file("memory.min")),
		readLimit(file("memory.swap.max"))
	a.Threads, a.MaxTasks = readNumber(file("pids.current")), readLimit(file("pids.max"))
	a.Processes = lines(file("cgroup.procs"))
	a.IO, a.Stalls = ioV2(file("io.stat")), stalls(dir)
	a.WorkingSet = difference(a.Memory, a.InactiveFile)
	return a, true
}

// Stalls returns the pressure stall information of the cgroup at path; v1 has none.
func (m *Manager) Stalls(path string) host.Stalls { return stalls(filepath.Join(m.Mount, path)) }

func stalls(dir string) host.Stalls {
	return host.StallsOf(func(resource string) string { return filepath.Join(dir, resource+".pressure") })
}

// accountV1 reads each controller's own hierarchy.
func (m *Manager) accountV1(path string) (Account, bool) {
	file := func(controller, name string) string { return filepath.Join(m.Mount, controller, path, name) }
	memory := func(name string) string { return file("memory", "memory."+name) }
	var a Account
	if a.CPU = readNumber(file("cpuacct", "cpuacct.usage")); a.CPU == nil {
		return a, false
	}
	ticks, _ := pairs(file("cpuacct", "cpuacct.stat"))
	a.User, a.System = scaledField(ticks, "user", nsPerTick), scaledField(ticks, "system", nsPerTick)
	cpu, _ := pairs(file("cpu", "cpu.stat"))
	a.Periods, a.Throttled = field(cpu, "nr_periods"), field(cpu, "nr_throttled")
	a.ThrottledTime = field(cpu, "throttled_time")
	a.Shares, a.Quota, a.Period = readNumber(file("cpu", "cpu.shares")), readLimit(file("cpu", "cpu.cfs_quota_us")),
		readNumber(file("cpu", "cpu.cfs_period_us"))
	stat, _ := pairs(memory("stat"))
	a.RSS, a.Cache = field(stat, "total_rss"), field(stat, "total_cache")
	a.Mapped, a.Swap = field(stat, "total_mapped_file"), field(stat, "total_swap")
	a.ActiveFile, a.InactiveFile = field(stat, "total_active_file"), field(stat, "total_inactive_file")
	a.PageFaults, a.MajorFaults = field(stat, "total_pgfault"), field(stat, "total_pgmajfault")
	a.Memory, a.MaxUsage = readNumber(memory("usage_in_bytes")), readNumber(memory("max_usage_in_bytes"))
	a.Kernel, a.FailCount = readNumber(memory("kmem.usage_in_bytes")), readNumber(memory("failcnt"))
	oom, _ := pairs(memory("oom_control"))
	a.OOMKills = field(oom, "oom_kill")
	a.MemoryLimit, a.Reservation = readLimit(memory("limit_in_bytes")), readLimit(memory("soft_limit_in_bytes"))
	a.SwapLimit = readLimit(memory("memsw.limit_in_bytes"))
	a.Threads, a.MaxTasks, a.Processes = readNumber(file("pids", "pids.current")), readLimit(file("pids", "pids.max")),
		lines(file("memory", "cgroup.procs"))
	a.IO = ioV1(file("blkio", "blkio.throttle.io_service_bytes_recursive"),
		file("blkio", "blkio.throttle.io_serviced_recursive"))
	a.WorkingSet = difference(a.Memory, a.InactiveFile)
	return a, true
}

// nsPerTick is the duration of a tick of USER_HZ, which is 100 on all architectures.
const nsPerTick = 10_000_000

func field(stat map[string]uint64, name string) *uint64 { return scaledField(stat, name, 1) }

func scaledField(stat map[string]uint64, name string, unit uint64) *uint64 {
	if n, ok := stat[name]; ok {
		return new(n * unit)
	}
	return nil
}

func difference(all, part *uint64) *uint64 {
	if all == nil || part == nil {
		return nil
	}
	return new(subtract(*all, *part))
}

// readNumber reads the number in a file; nil: the file does not exist, or contains no number.
func readNumber(path string) *uint64 {
	if n, err := number(path); err == nil {
		return &n
	}
	return nil
}

// unlimited is less than the value that cgroup v1 reports without a limit: the largest multiple of the page size.
const unlimited = 1 << 62

// readLimit reads the limit in a file; 0 means no limit: max, -1, or a huge number. nil: the file does not exist.
func readLimit(path string) *uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n >= unlimited {
		n = 0
	}
	return &n
}

// quotaV2 reads cpu.max, which contains a quota, or max, and a period.
func quotaV2(path string) (quota, period *uint64) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	q, _ := strconv.ParseUint(first, 10, 64) // max: 0
	p, err := strconv.ParseUint(second, 10, 64)
	if err != nil {
		return nil, nil
	}
	return &q, &p
}

func lines(path string) *uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return new(uint64(bytes.Count(text, []byte("\n"))))
}

// ioV2 reads io.stat: each line has a device and pairs NAME=VALUE.
func ioV2(path string) []DeviceIO {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var out []DeviceIO
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		d := DeviceIO{Device: fields[0]}
		for _, f := range fields[1:] {
			name, value, _ := strings.Cut(f, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch name {
			case "rbytes":
				d.ReadBytes = n
			case "wbytes":
				d.WriteBytes = n
			case "rios":
				d.Reads = n
			case "wios":
				d.Writes = n
			}
		}
		out = append(out, d)
	}
	return out
}

// ioV1 reads two files of lines such as "8:0 Read 4096".
func ioV1(bytesFile, countFile string) []DeviceIO {
	var out []DeviceIO
	at := map[string]int{}
	each := func(path string, set func(d *DeviceIO, operation string, n uint64)) {
		text, _ := os.ReadFile(path) // missing if the controller is disabled
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue // the total
			}
			n, err := strconv.ParseUint(fields[2], 10, 64)
			if err != nil {
				continue
			}
			i, ok := at[fields[0]]
			if !ok {
				i = len(out)
				at[fields[0]], out = i, append(out, DeviceIO{Device: fields[0]})
			}
			set(&out[i], fields[1], n)
		}
	}
	each(bytesFile, func(d *DeviceIO, operation string, n uint64) {
		switch operation {
		case "Read":
			d.ReadBytes = n
		case "Write":
			d.WriteBytes = n
		}
	})
	each(countFile, func(d *DeviceIO, operation string, n uint64) {
		switch operation {
		case "Read":
			d.Reads = n
		case "Write":
			d.Writes = n
		}
	})
	return out
}
