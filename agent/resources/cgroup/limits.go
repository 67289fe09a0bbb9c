package cgroup

import (
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// Limits are the limits of a cgroup; 0: not set.
type Limits struct {
	Shares int64 // cpu.shares
	Quota  int64 // CPU time, in µs per 100 ms
	Memory int64 // bytes
	PIDs   int64
	// HugePages are limits in bytes, by page size.
	HugePages map[int64]int64
	// Protection is written on v2 only; nil: not set.
	Protection *Protection
}

// Protection is memory in bytes that the kernel does not reclaim (Min), or reclaims only if nothing else is left (Low).
type Protection struct{ Min, Low int64 }

// Shares returns the CPU shares of the pod's cgroup.
func (m *Manager) Shares(pod *corev1.Pod) int64 { return m.podLimits(pod).Shares }

// podLimits returns the sums over the pod's containers, unless the pod itself has
// limits.
func (m *Manager) podLimits(pod *corev1.Pod) Limits {
	requests, limits := status.Requests(pod), status.Limits(pod)
	l := Limits{
		Shares: spec.Shares(requests.Cpu().MilliValue()), Memory: limits.Memory().Value(), PIDs: max(m.MaxPIDs, 0),
		HugePages: map[int64]int64{},
	}
	if milli := limits.Cpu().MilliValue(); milli > 0 {
		l.Quota = spec.Quota(milli)
	}
	for _, size := range m.HugePages {
		q := limits[host.HugePage(size)]
		l.HugePages[size] = q.Value()
	}
	if m.Protect {
		l.Protection = new(protectionOf(status.QOS(pod), requests.Memory().Value()))
	}
	return l
}

// protectionOf returns what a pod of this class gets that requests so many bytes.
func protectionOf(class corev1.PodQOSClass, requested int64) Protection {
	if class == corev1.PodQOSGuaranteed {
		return Protection{Min: requested}
	}
	return Protection{Low: requested}
}

// value is the content of a file; optional files are written only if the kernel has
// them.
type value struct {
	file, value string
	optional    bool
}

// values returns the files to write for a controller.
func (l Limits) values(controller string, v2 bool) []value {
	switch controller {
	case "cpu":
		return l.cpu(v2)
	case "memory":
		out := one(l.Memory, v2, "memory.max", "memory.limit_in_bytes")
		if p := l.Protection; v2 && p != nil {
			out = append(out, value{file: "memory.min", value: itoa(p.Min)}, value{file: "memory.low", value: itoa(p.Low)})
		}
		return out
	case "pids":
		return one(l.PIDs, v2, "pids.max", "pids.max")
	}
	return l.hugePages(v2)
}

func (l Limits) cpu(v2 bool) []value {
	if v2 {
		out := one(weight(l.Shares), v2, "cpu.weight", "")
		if l.Quota > 0 {
			out = append(out, value{file: "cpu.max", value: itoa(l.Quota) + " 100000"})
		}
		return out
	}
	out := one(l.Shares, v2, "", "cpu.shares")
	if l.Quota > 0 {
		out = append(out, value{file: "cpu.cfs_period_us", value: "100000"},
			value{file: "cpu.cfs_quota_us", value: itoa(l.Quota)})
	}
	return out
}

func one(amount int64, v2 bool, fileV2, fileV1 string) []value {
	switch {
	case amount <= 0:
		return nil
	case v2:
		return []value{{file: fileV2, value: itoa(amount)}}
	}
	return []value{{file: fileV1, value: itoa(amount)}}
}

// hugePages returns the limits of pages in use and, for Linux 5.7 and later, of reserved pages.
func (l Limits) hugePages(v2 bool) []value {
	var out []value
	for _, size := range slices.Sorted(maps.Keys(l.HugePages)) {
		for _, kind := range []string{"", "rsvd."} {
			file := "hugetlb." + spec.PageName(size) + "." + kind + "limit_in_bytes"
			if v2 {
				file = "hugetlb." + spec.PageName(size) + "." + kind + "max"
			}
			out = append(out, value{file: file, value: itoa(l.HugePages[size]), optional: kind != ""})
		}
	}
	return out
}

// needs reports whether the limits need the controller.
func (l Limits) needs(controller string) bool {
	if controller != "hugetlb" {
		return len(l.values(controller, false)) > 0
	}
	for _, amount := range l.HugePages {
		if amount > 0 {
			return true
		}
	}
	return false
}

// weight converts cpu.shares (2 to 262144) to cpu.weight (1 to 10000). 1024 shares, one CPU, are weight 100, the
// kernel's default. runc 1.3.2 and kubelet 1.35 use the same formula.
func weight(shares int64) int64 {
	if shares <= 2 {
		return min(shares, 1)
	}
	l := math.Log2(float64(min(shares, 262144)))
	return min(int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34))), 10000)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
