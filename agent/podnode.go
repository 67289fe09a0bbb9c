package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
	"monopod/agent/pod"
	"monopod/agent/pod/containers"
	"monopod/agent/pod/images"
	"monopod/agent/pod/observe"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/cdi"
	"monopod/agent/resources/userns"
	"monopod/agent/runtime/relist"
	"monopod/agent/storage/credentials"
	"monopod/apiserver/kit/memory"
)

// Limits of pods that start or stop at the same time. More starts would only share the same CPUs. A start or stop that
// takes longer than its maximum time no longer counts: most of a stop may be a program that ignores SIGTERM.
const (
	maxConcurrentStarts = 8
	maxStartTime        = 2 * time.Second
	maxStopTime         = 500 * time.Millisecond
)

// Bytes of memory that must be free for each pod that starts or stops at the same time as others: for the runtime's
// short-lived programs, and for the shim of a new pod. They were measured with containerd 1.6 and runc 1.1. Without
// this memory the kernel would kill the largest process, which is Monopod or containerd.
const (
	startMemory = 14 << 20
	stopMemory  = 10 << 20
)

// limitByMemory returns a function that returns how many pods may start or stop at the same time: as many as the free
// memory allows with each bytes, but no more than most.
func limitByMemory(most int, each uint64) func() int {
	return func() int { return int(min(uint64(most), memory.Free()/each)) }
}

// memory returns how containers share the machine's memory.
func (a *Agent) memory() spec.Memory {
	capacity := a.machine.capacity[corev1.ResourceMemory]
	out := spec.Memory{Capacity: capacity.Value()}
	if a.cgroups != nil {
		out.LimitsSwap, out.Protect = a.cgroups.LimitsSwap, a.cgroups.Protects()
		if used, err := host.ReadUsage(); err == nil && a.cfg.MemoryPolicy.Swaps() {
			out.Swap = int64(used.SwapUsed + used.SwapFree)
		}
	}
	return out
}

// newPodNode returns the dependencies that the pods of this node share.
func (a *Agent) newPodNode(probes *probe.Metrics) *pod.Node {
	d, cfg, m := &a.deps, &a.cfg, a.machine
	rotate, place := a.upkeep.rotate, a.upkeep.placement
	memory := a.memory()
	certificates := credentials.NewCertificates(d.Client, d.Clock, cfg.NodeName,
		func(pod *corev1.Pod, reason, message string) {
			a.event(pod, "", corev1.EventTypeWarning, reason, "%s", message)
		})
	d.Metrics.MustRegister(certificates.Metrics())
	n := &pod.Node{
		Client: d.Client, Runtime: d.Runtime, Clock: d.Clock, Log: d.Log, Guard: a.guard,
		HostIPs: m.addresses.Strings, Memory: memory, SyncFrequency: cfg.SyncFrequency,
		Observers: observe.Node{
			Clock: d.Clock, Runtime: relist.Reader{Runtime: d.Runtime, Instance: cfg.Instance}, Owners: a.owners,
			HostIPs: m.addresses.Strings, Allocatable: m.allocatable,
			Flushed: a.Flushed, Log: a.logs.Path,
		},
		Images: images.Node{
			Client: d.Client, Runtime: d.Runtime, Puller: a.images.pulls, Clock: d.Clock, Guard: a.guard,
			Imported: a.images.preload.First, Changed: a.node.ImagesChanged, Unavailable: a.node.Poke, Failed: a.metrics.Failed,
		},
		Volumes: volumes.Node{
			Dir: cfg.podsDir(), Client: d.Client, Runtime: d.Runtime, Clock: d.Clock, Mounter: d.Mounter,
			Tokens: credentials.NewTokens(d.Client, d.Clock), Claims: a.claims, Observe: a.metrics.Volume,
			Certificates: certificates, Data: cfg.DataDir, Drivers: a.csi,
		},
		Sandboxes: sandbox.Node{
			Client: d.Client, Runtime: d.Runtime, Clock: d.Clock, Users: userns.New(cfg.podsDir(), cfg.MaxPods),
			Machine:  cfg.Machine,
			Instance: cfg.Instance, Cluster: spec.Cluster{DNS: cfg.ClusterDNS, Domain: cfg.ClusterDomain},
			Resolv: spec.Resolvers{File: cfg.ResolvConf, Upstream: spec.SystemdResolvers}, Logs: a.logs.Pod,
		},
		Containers: containers.Node{
			Config: containers.Config{
				Instance: cfg.Instance, Domain: cfg.ClusterDomain, Server: cfg.Server, HostIPs: m.addresses.Strings,
				Memory:    memory,
				PageSizes: m.pageSizes, SeccompDir: cfg.seccompDir(), CDIDirs: cdi.Dirs(cfg.DataDir),
				SeccompDefault: cfg.Security.SeccompDefault, Machine: cfg.Machine,
			},
			Client: d.Client, Runtime: d.Runtime, Clock: d.Clock, Guard: a.guard, Probes: probes, Logs: a.logs, Placement: place,
			Caller:  probe.Caller{Exec: d.Runtime, Dial: d.Dial},
			Started: func(kind string) { a.metrics.Started(kind); rotate.Poke() }, Failed: a.metrics.Failed,
			Running: rotate.Poke,
		},
		Placement: place, Statuses: a.status,
		Hooks: pod.Hooks{
			Event: a.event, CheckResize: a.loop.admitter.checkResize, Readmit: a.loop.admitter.readmit,
			AcquireStart: newConcurrencyLimit(maxStartTime, limitByMemory(maxConcurrentStarts, startMemory)).acquire,
			AcquireStop:  newConcurrencyLimit(maxStopTime, limitByMemory(cfg.MaxPods, stopMemory)).acquire,
			Unmounted:    a.releaseClaims, Unavailable: a.node.Poke, Stepped: a.metrics.Stepped, Ran: a.metrics.Ran,
			Terminated: a.metrics.Terminated,
		},
	}
	if a.cgroups != nil {
		n.Sandboxes.Cgroups = a.cgroups
	}
	return n
}
