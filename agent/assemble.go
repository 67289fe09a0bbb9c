package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/host/checkpoint"
	"monopod/agent/images/admin"
	"monopod/agent/images/gc"
	"monopod/agent/images/pull"
	"monopod/agent/logs"
	"monopod/agent/node/registrar"
	"monopod/agent/node/server"
	"monopod/agent/node/shutdown/drain"
	"monopod/agent/node/stream"
	"monopod/agent/pod"
	"monopod/agent/pod/probe"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/predicates"
	"monopod/agent/pressure/eviction"
	"monopod/agent/pressure/evictor"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/placement"
	"monopod/agent/resources/plugins"
	"monopod/agent/runtime"
	"monopod/agent/runtime/relist"
	"monopod/agent/source"
	"monopod/agent/source/static"
	"monopod/agent/stats"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/credentials"
	"monopod/agent/storage/csi"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// assemble reads the machine and creates the parts, each after those that it depends on. If two parts depend on each
// other, the first one gets a function that calls the second, and must not call it before Run.
func (a *Agent) assemble() (err error) {
	d, cfg := &a.deps, &a.cfg
	if a.guard, err = guard.New(d.Log, d.Clock, d.Metrics); err != nil {
		return err
	}
	a.pods = newPods(d.Clock, a.guard)
	if a.metrics, err = pod.NewMetrics(d.Metrics, cfg.NodeName, a.pods.all); err != nil {
		return err
	}
	d.Runtime = runtime.Bounded(d.Runtime, a.metrics.Operation)
	if a.machine, err = readMachine(cfg); err != nil {
		return err
	}
	a.logs = logs.New(filepath.Join(cfg.DataDir, "logs"), d.Log)
	a.loop = &loop{clock: d.Clock, log: d.Log, guard: a.guard, period: cfg.RelistPeriod, pods: a.pods, owners: a.owners}
	a.loop.sweep = &sweeper{
		cfg: cfg, log: d.Log, pods: a.pods, logs: a.logs, mounter: d.Mounter, swept: make(chan struct{}),
		pokeEvictor: func() { a.upkeep.evict.Poke() },
	}
	for _, assemble := range []func() error{
		a.assembleImages, a.assembleNode, a.assembleSources, a.assembleUpkeep, a.assemblePods,
	} {
		if err := assemble(); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) assembleImages() error {
	d, cfg := &a.deps, &a.cfg
	pulls, err := pull.NewMetrics(d.Metrics)
	if err != nil {
		return err
	}
	records, err := pull.NewRecords(filepath.Join(cfg.DataDir, "image_manager"))
	if err != nil {
		return err
	}
	a.images = imageParts{
		place: pull.NewPlace(d.Runtime, cfg.ImageRoot),
		pulls: &pull.Puller{Runtime: d.Runtime, Clock: d.Clock, Limits: cfg.Pulls, ConfigFile: cfg.PullConfig, Metrics: pulls,
			Records: records, Verify: cfg.Verify},
	}
	a.images.preload = pull.NewImporter(pull.PreloadConfig{
		Dir: cfg.ImageDir, Record: filepath.Join(cfg.DataDir, "imported.json"), Runtime: d.Runtime, Clock: d.Clock,
		Log: d.Log, Arrived: a.imagesArrived,
		Imported: a.images.pulls.Imported,
		Failed:   func(message string) { a.node.Problem(registrar.ImagesNotImported, message) },
	})
	return nil
}

// assembleNode creates the parts for the Node object, the runtime and the shutdown.
func (a *Agent) assembleNode() error {
	d, cfg := &a.deps, &a.cfg
	health, err := relist.NewHealth(d.Clock, d.Metrics)
	if err != nil {
		return err
	}
	a.node, err = registrar.New(registrar.Deps{
		Client: d.Client, Runtime: d.Runtime, Clock: d.Clock, Log: d.Log, Recorder: d.Recorder,
		Resources:    func() (capacity, allocatable corev1.ResourceList) { return a.machine.capacity, a.machine.allocatable },
		Offer:        func(next, cur *corev1.NodeStatus, first bool) { a.upkeep.placement.Offer(next, cur, first) },
		Pressure:     func() []corev1.NodeConditionType { return a.upkeep.evict.Pressure() },
		Needs:        d.Needs,
		ShuttingDown: func() bool { return a.Drain.ShuttingDown() },
		PLEG:         health.Check, Ready: a.images.place.Find,
	}, registrar.Config{
		NodeName: cfg.NodeName, Port: cfg.Port, HostIPs: a.machine.addresses.Strings, Network: d.Network,
		PodCIDRs: cfg.PodCIDRs, OwnPodCIDRs: cfg.OwnPodCIDRs, Labels: cfg.Labels, Taints: cfg.Taints,
		StateRestored:   cfg.StateRestored,
		HeartbeatPeriod: cfg.HeartbeatPeriod, StatusPeriod: cfg.StatusPeriod, LeaseDuration: cfg.LeaseDuration,
	})
	if err != nil {
		return err
	}
	a.loop.relister = relist.New(relist.Config{
		Runtime: d.Runtime, Inventory: relist.Reader{Runtime: d.Runtime, Instance: cfg.Instance}, Health: health,
		Guard: a.guard, Clock: d.Clock, Log: d.Log, Poke: a.node.Poke,
	})
	a.Drain, err = drain.New(drain.Deps{
		Clock: d.Clock, Log: d.Log, Metrics: d.Metrics, PodsListed: a.loop.sweep.swept, Poke: a.node.Poke,
		Pods:     func() map[types.UID]evictor.Pod { return podsAs(a.pods, func(p *pod.Pod) evictor.Pod { return p }) },
		Critical: func(object *corev1.Pod) bool { return a.upkeep.evict.Critical(object) },
		Await: func(ctx context.Context, pods []evictor.Pod, limit time.Duration) {
			a.upkeep.evict.Await(ctx, pods, limit)
		},
		Resume: func() { a.loop.statics.retry() },
	}, checkpoint.File(filepath.Join(cfg.DataDir, "graceful_node_shutdown_state")))
	return err
}

// assembleSources creates the parts that receive pods and report them.
func (a *Agent) assembleSources() error {
	d, cfg := &a.deps, &a.cfg
	a.status = pod.NewStatusWriter(d.Client, d.Clock, d.Log, a.guard)
	a.source = source.New(source.Follower(d.Client, d.Clock, d.Log), cfg.NodeName, a.pods.refresh)
	a.source.Named = cfg.Joined
	s := &statics{clock: d.Clock, pods: a.pods, resumed: a.Drain.TakeRestartable, wake: make(chan struct{}, 1)}
	metrics, err := follow.NewMetrics(d.Metrics)
	if err != nil {
		return err
	}
	s.mirrors = source.NewMirrors(source.MirrorDeps{
		Client: d.Client, Clock: d.Clock, Log: d.Log, Metrics: metrics, Runs: s.runs, Rewrite: a.status.Rewrite,
	}, cfg.NodeName)
	s.manifests = static.NewSource(static.Deps{
		Clock: d.Clock, Log: d.Log, Node: a.node, RestoreStatuses: s.mirrors.RestoreStatuses, Notify: d.Notify,
		Failed: func(message string) { a.node.Problem(registrar.StaticPodsInvalid, message) },
	}, static.Config{Path: cfg.ManifestDir, Node: cfg.NodeName, Complete: d.Complete, Now: d.Clock.Now})
	a.Streams = stream.New(stream.Deps{
		Runtime: d.Runtime, Clock: d.Clock, Dir: a.logs, PodsListed: a.loop.sweep.swept, StaticPod: s.mirrors.StaticPod,
		Pod:   func(uid types.UID) (stream.Pod, bool) { p := a.pods.get(uid); return p, p != nil },
		Guard: a.guard,
	})
	a.loop.source, a.loop.statics, a.loop.mirrors = a.source, s, s.mirrors
	a.claims = claims.New(claims.Deps{
		Client: d.Client, Node: a.node.Current, Dir: cfg.volumesDir(), Made: a.pods.hasContainers,
	})
	boot, err := host.BootID()
	if err != nil {
		return err
	}
	a.csi, err = csi.New(csi.Config{
		Client: d.Client, Clock: d.Clock, Log: d.Log.Named("csi"), Guard: a.guard, Metrics: metrics, Mounter: d.Mounter,
		Tokens: credentials.NewTokens(d.Client, d.Clock), Dir: cfg.DataDir, Boot: boot, SELinux: cfg.Machine.SELinux,
		Dial: plugins.Dial, Node: a.node.Current, Changed: a.pods.wakeForDrivers,
		Event: func(pod *corev1.Pod, eventType, reason, format string, args ...any) {
			a.event(pod, "", eventType, reason, format, args...)
		},
	})
	if err != nil {
		return err
	}
	a.loop.sweep.drivers = a.csi
	return d.Metrics.Register(a.csi.Metrics())
}

// assembleUpkeep creates the parts that maintain the node.
func (a *Agent) assembleUpkeep() (err error) {
	d, cfg, u, known := &a.deps, &a.cfg, &a.upkeep, a.loop.sweep.done
	var manager *cgroup.Manager
	if cfg.CgroupRoot != "" {
		manager = cgroup.New(cgroup.Config{
			Mount: cfg.CgroupMount, Root: cfg.CgroupRoot, MaxPIDs: cfg.PodMaxPIDs, HugePages: a.machine.pageSizes,
			Protect: cfg.MemoryPolicy.Protects(), Units: d.Units,
		})
		a.cgroups = cgroup.NewEnforcer(cgroup.EnforcerDeps{
			Cgroups: manager, Node: a.node, Log: d.Log, Reserve: cfg.Reserve, Capacity: a.machine.capacity,
			Observe: a.metrics.Cgroup,
		})
		a.loop.sweep.cgroups = a.cgroups
	}
	if u.placement, err = placement.New(placement.Deps{
		Runtime: d.Runtime, Node: a.node, Clock: d.Clock, Log: d.Log, Metrics: d.Metrics, Guard: a.guard,
		Providers: d.Providers,
		Pods:      func() map[types.UID]placement.Pod { return podsAs(a.pods, func(p *pod.Pod) placement.Pod { return p }) },
		Pod:       func(uid types.UID) (placement.Pod, bool) { p := a.pods.get(uid); return p, p != nil },
		Known:     known, Active: a.pods.active,
	}, placement.Config{
		DataDir: cfg.DataDir, SysRoot: cfg.SysRoot, Capacity: a.machine.capacity, Reserve: cfg.Reserve,
		Evicting: cfg.Eviction.Reservation(a.machine.capacity),
		CPUs:     cfg.CPUs, Memory: cfg.Memory, Topology: cfg.Topology, Devices: cfg.Devices, Plugins: cfg.Plugins,
		Claims: deviceClaims{d.Client, cfg.NodeName}, CSI: a.csi.Welcome, Socket: cfg.PodResources,
	}); err != nil {
		return err
	}
	if processors := u.placement.Processors(); processors > 0 { // 0: unknown to the CPU manager, the capacity stays
		a.machine.capacity[corev1.ResourceCPU] = *resource.NewQuantity(int64(processors), resource.DecimalSI)
		a.machine.allocatable = a.machine.reserve(cfg)
	}
	a.loop.placement, a.loop.relister.Found = u.placement, u.placement.Found
	if u.rotate, err = logs.NewRotator(logs.RotatorDeps{
		Clock: d.Clock, Metrics: d.Metrics, Running: a.containerFiles(), Reopen: d.Runtime.ReopenContainerLog,
		Notify: d.NotifyWrites, Log: d.Log, Guard: a.guard,
	}, cfg.Logs); err != nil {
		return err
	}
	if u.collect, err = gc.New(gc.Deps{
		Runtime: d.Runtime, Clock: d.Clock, Log: d.Log, Metrics: d.Metrics, Node: a.node, Images: a.images.place,
		Pods:       func() map[types.UID]gc.RunningPod { return podsAs(a.pods, func(p *pod.Pod) gc.RunningPod { return p }) },
		PodsListed: known, Sweep: a.loop.sweep.removeFolders, Preloaded: a.images.preload.Names, InUse: a.pods.volumeImages,
		ImageRemoved: a.images.pulls.Records.Removed,
	}, cfg.Garbage); err != nil {
		return err
	}
	u.stats = stats.New(stats.Config{
		Node: cfg.NodeName, Labels: map[string]string{spec.LabelInstance: cfg.Instance}, Runtime: d.Runtime, Cgroups: manager,
		Clock: d.Clock, Pods: a.statsPods, Dir: cfg.DataDir, ImageRoot: cfg.ImageRoot,
		Driver: a.csi.Usage,
	})
	if err := d.Metrics.Register(u.stats.Volumes()); err != nil {
		return err
	}
	if d.Signals == nil {
		d.Signals = func() eviction.Observations { return evictor.Machine(cfg.DataDir, a.images.place.Root()) }
	}
	u.evict, err = evictor.New(evictor.Deps{
		Clock: d.Clock, Log: d.Log, Metrics: d.Metrics, Node: a.node, Usage: u.stats, Signals: d.Signals,
		Pods:       func() map[types.UID]evictor.Pod { return podsAs(a.pods, func(p *pod.Pod) evictor.Pod { return p }) },
		PodsListed: known, Static: a.pods.static, Reclaim: u.collect.Reclaim, WatchMemory: d.WatchMemory,
		WatchUsage: d.WatchUsage,
	}, cfg.Eviction)
	return err
}

// assemblePods creates the admission of pods, what the pods share, and the kubelet's server.
func (a *Agent) assemblePods() error {
	d, cfg := &a.deps, &a.cfg
	a.loop.admitter = &admitter{
		guard: a.guard, pods: a.pods, event: a.event, node: a.node.Latest, current: a.node.Current,
		place: a.upkeep.placement, evict: a.upkeep.evict,
		refuse: a.Drain.Refuse, wake: make(chan struct{}, 1),
		handlers: []predicates.Handler{
			predicates.NodeName, a.admitSecurity, predicates.Affinity, predicates.Taints, predicates.Ports,
			predicates.Resources,
		},
	}
	probed := prometheus.NewRegistry()
	probes, err := probe.NewMetrics(probed)
	if err != nil {
		return err
	}
	a.pods.node, a.pods.admitter, a.pods.removing = a.newPodNode(probes), a.loop.admitter, a.forget
	a.pods.removed = func(ctx context.Context, p *pod.Pod) {
		a.releaseClaims(p.UID())
		if p.Static() && ctx.Err() == nil {
			a.loop.statics.ended(p.Object())
		}
	}
	a.server = server.New(server.Config{
		Node: a, Stats: a.upkeep.stats.Handler(), Metrics: d.Gather, Probes: probed,
		Images:  admin.Handler(func(context.Context) *admin.Admin { return a.ImageAdmin() }),
		Configz: cfg.Configz, LogDir: a.logs.Root(), Debugging: !cfg.NoDebugging, Terminal: cfg.Terminal,
	})
	return nil
}

// admitSecurity rejects pods with security settings that this machine cannot apply.
func (a *Agent) admitSecurity(pod *corev1.Pod, _ []*corev1.Pod, _ *corev1.Node) *status.Failure {
	return a.cfg.Machine.Refuse(pod, &a.cfg.Security)
}
