package evictor

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"monopod/agent/host"
	"monopod/agent/pressure/eviction"
)

// usage returns the pods' usage of the signal's resource; nil if it cannot be read.
func (e *Evictor) usage(ctx context.Context, signal eviction.Signal) map[types.UID]eviction.Usage {
	summary, err := e.Usage.Summary(ctx, !signal.OnDisk())
	if err != nil {
		e.Log.Warn("failed to read the usage of pods", zap.Error(err))
		return nil
	}
	out := map[types.UID]eviction.Usage{}
	for i := range summary.Pods {
		p := &summary.Pods[i]
		out[types.UID(p.PodRef.UID)] = usageOf(p)
	}
	return out
}

func usageOf(p *statsapi.PodStats) eviction.Usage {
	u := eviction.Usage{Pod: map[corev1.ResourceName]int64{}, Containers: map[string]map[corev1.ResourceName]int64{}}
	u.Pod[corev1.ResourceMemory] = int64(*p.Memory.WorkingSetBytes)
	if fs := p.EphemeralStorage; fs != nil {
		u.Pod[corev1.ResourceEphemeralStorage], u.Pod[eviction.NodeFsInodes.Resource()] = int64(*fs.UsedBytes),
			int64(*fs.InodesUsed)
	}
	if p.ProcessStats != nil {
		u.Pod[eviction.PID.Resource()] = int64(*p.ProcessStats.ProcessCount)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		used := map[corev1.ResourceName]int64{corev1.ResourceMemory: int64(*c.Memory.WorkingSetBytes)}
		if c.Rootfs != nil && c.Logs != nil {
			used[corev1.ResourceEphemeralStorage] = int64(*c.Rootfs.UsedBytes + *c.Logs.UsedBytes)
		}
		u.Containers[c.Name] = used
	}
	return u
}

// Machine reads the signals of this machine: memory, process IDs, and the file systems of the two folders. An
// unreadable signal is missing.
func Machine(data, images string) eviction.Observations {
	out := eviction.Observations{}
	for signal, read := range map[eviction.Signal]func() (host.Amount, error){
		eviction.Memory:        host.Memory,
		eviction.PID:           host.PIDs,
		eviction.NodeFs:        func() (host.Amount, error) { return host.Disk(data) },
		eviction.NodeFsInodes:  func() (host.Amount, error) { return host.Inodes(data) },
		eviction.ImageFs:       func() (host.Amount, error) { return host.Disk(images) },
		eviction.ImageFsInodes: func() (host.Amount, error) { return host.Inodes(images) },
	} {
		if amount, err := read(); err == nil && amount.Total > 0 {
			out[signal] = eviction.Amount(amount)
		}
	}
	return out
}
