package spec

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/podapi/status"
)

// Kubelet's constants for the CFS scheduler and the OOM killer.
const (
	sharesPerCPU     = 1024
	minShares        = 2
	maxShares        = 262144
	cfsPeriod        = 100000 // µs
	minQuota         = 1000   // µs
	guaranteedOOM    = -997
	bestEffortOOM    = 1000
	minBurstableOOM  = 2
	criticalPriority = 2_000_001_000 // system-node-critical
	systemPriority   = 2_000_000_000 // the lowest of the system's priorities
)

// Memory is how containers share the machine's memory. Upstream: kubelet's memorySwap and memoryReservationPolicy.
type Memory struct {
	Capacity int64 // of the machine in bytes, for oom_score_adj
	Swap     int64 // bytes of swap that Burstable containers share; 0: no container gets any
	Protect  bool  // the kernel keeps the memory that containers request (cgroup v2)
	// LimitsSwap reports whether the kernel can limit swap (cgroup v2); nil: it cannot.
	LimitsSwap func() bool
}

// files returns the files of a container's cgroup v2 that CRI has no fields for.
func (m Memory) files(pod *corev1.Pod, c *corev1.Container) map[string]string {
	out := map[string]string{}
	request, class := c.Resources.Requests.Memory().Value(), status.QOS(pod)
	if m.LimitsSwap != nil && m.LimitsSwap() {
		swap := int64(0)
		if p := pod.Spec.Priority; class == corev1.PodQOSBurstable && (p == nil || *p < systemPriority) &&
			request != c.Resources.Limits.Memory().Value() {
			swap = int64(float64(request) / float64(m.Capacity) * float64(m.Swap))
		}
		out["memory.swap.max"] = strconv.FormatInt(swap, 10)
	}
	if m.Protect && class == corev1.PodQOSGuaranteed {
		out["memory.min"] = strconv.FormatInt(request, 10)
	} else if m.Protect {
		out["memory.low"] = strconv.FormatInt(request, 10)
	}
	return out
}

// Resources returns a container's cgroup settings.
func Resources(pod *corev1.Pod, c *corev1.Container, memory Memory) *cri.LinuxContainerResources {
	requests, limits := c.Resources.Requests, corev1.ResourceList{}
	// Without a limit of its own the container gets the pod's, so that a program that reads its limit finds one.
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q := c.Resources.Limits[name]; !q.IsZero() {
			limits[name] = q
		} else if pod.Spec.Resources != nil {
			limits[name] = pod.Spec.Resources.Limits[name]
		}
	}
	request := requests.Cpu().MilliValue()
	if _, ok := requests[corev1.ResourceCPU]; !ok {
		request = limits.Cpu().MilliValue()
	}
	r := &cri.LinuxContainerResources{
		CpuShares:          Shares(request),
		MemoryLimitInBytes: limits.Memory().Value(),
		OomScoreAdj:        oomScore(pod, c, memory.Capacity),
		Unified:            memory.files(pod, c),
	}
	if milli := limits.Cpu().MilliValue(); milli > 0 {
		r.CpuPeriod, r.CpuQuota = cfsPeriod, Quota(milli)
	}
	return r
}

// Shares returns the cgroup v1 cpu.shares of a request in millicores.
func Shares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// Quota returns the CFS quota in µs of a limit in millicores, for a period of 100 ms.
func Quota(milli int64) int64 {
	return max(milli*cfsPeriod/1000, minQuota)
}

// oomScore returns kubelet's oom_score_adj of a container: −997 in guaranteed and node-critical pods, 1000 in
// best-effort pods, and otherwise 1000 − 1000·request/capacity within 2…999. The OOM killer does not choose a
// sidecar before the containers that it serves.
func oomScore(pod *corev1.Pod, c *corev1.Container, capacity int64) int64 {
	if p := pod.Spec.Priority; p != nil && *p >= criticalPriority {
		return guaranteedOOM
	}
	switch status.QOS(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteedOOM
	case corev1.PodQOSBestEffort:
		return bestEffortOOM
	}
	if capacity <= 0 {
		return bestEffortOOM - 1
	}
	request := c.Resources.Requests.Memory().Value()
	if status.Sidecar(c) {
		request = max(request, leastRequest(pod.Spec.Containers))
	}
	score := 1000 - 1000*(request+shareOfRest(pod))/capacity
	return min(max(score, minBurstableOOM), bestEffortOOM-1)
}

// leastRequest returns the smallest request of memory in bytes.
func leastRequest(list []corev1.Container) int64 {
	least := list[0].Resources.Requests.Memory().Value()
	for i := range list {
		least = min(least, list[i].Resources.Requests.Memory().Value())
	}
	return least
}

// shareOfRest returns a container's equal share, in bytes, of the memory that the pod itself requests beyond the
// requests of its containers.
func shareOfRest(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	all := resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - all.Memory().Value()
	return max(rest, 0) / int64(len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
}
