// Package launch runs the agent on the runtime that it is told: containerd, the
// one that is there or one of our own, or memory. It is the only place beside
// the tests that knows the agent and both runtimes.
package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent"
	"monopod/agent/images/image"
	"monopod/agent/logs"
	"monopod/agent/node/host"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/logind"
	"monopod/agent/pressure/oom"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/cgroup/systemd"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/runtime"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/agent/runtime/fake"
	"monopod/agent/storage/mount"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client"
	metricsapi "monopod/apiserver/client/metrics"
	"monopod/apiserver/client/record"
	"monopod/apiserver/process/guard"
)

// Config of a Node. DataDir is required, and Settings that Complete has accepted.
type Config struct {
	Settings Settings
	DataDir  string
	Services []netip.Prefix // the ranges of Services' addresses
	Server   netip.AddrPort // where the API server listens
	Port     int32          // where the API server serves what the node answers; 0: nowhere but through the API
	Restored string         // the snapshot that took the place of the state; empty: none did
}

// Deps are what a Node talks to; all are required.
type Deps struct {
	Client  client.Client
	Metrics prometheus.Registerer
	// Complete checks what does not come through the API.
	Complete func(client.Object) error
	Log      *zap.Logger
}

// Node is the agent and what it stands on. The API does not wait for it.
type Node struct {
	Deps
	cfg    Config
	kernel *oom.Log // nil: it must not be read; set by Run
	agent  atomic.Pointer[agent.Agent]
	fake   atomic.Pointer[fake.Runtime] // nil: the runtime is a real one, or yet to start
}

// New returns a node that does not run yet.
func New(deps Deps, cfg Config) *Node { return &Node{Deps: deps, cfg: cfg} }

// Find answers which node streams from the pods on the node of that name.
func (n *Node) Find(name string) (client.Node, error) {
	if name != n.cfg.Settings.NodeName {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q does not run in this process", name))
	}
	if a := n.agent.Load(); a != nil {
		return a, nil
	}
	return nil, apierrors.NewServiceUnavailable("the node is still starting")
}

// PLEG is nil while the node learns what becomes of its pods, or is yet to start.
func (n *Node) PLEG(context.Context) error {
	if a := n.agent.Load(); a != nil {
		return a.PLEG()
	}
	return nil
}

// Health says which parts of the agent, and which pods, have panicked a short time ago.
func (n *Node) Health(context.Context) error {
	if a := n.agent.Load(); a != nil {
		return a.Health()
	}
	return nil
}

// Usage is what the node and its pods use.
func (n *Node) Usage(ctx context.Context) (*metricsapi.NodeMetrics, []*metricsapi.PodMetrics, error) {
	if a := n.agent.Load(); a != nil {
		return a.Usage(ctx)
	}
	return nil, nil, nil
}

// Shutdown is the node that stops its pods; nil while it is starting.
func (n *Node) Shutdown() shutdown.Node {
	if a := n.agent.Load(); a != nil {
		return a
	}
	return nil
}

// Holds says that a pod of the fake runtime has the address: to real ones the
// machine's network leads.
func (n *Node) Holds(ip netip.Addr) bool {
	rt := n.fake.Load()
	return rt != nil && rt.Holds(ip)
}

// Dial reaches the pods of the fake runtime.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if rt := n.fake.Load(); rt != nil {
		return rt.Dial(ctx, network, address)
	}
	return nil, errors.New("no pod runs on the fake runtime")
}

// mounter keeps the volumes of the fake runtime's pods in folders; nil: real ones
// are mounted.
func (n *Node) mounter() volume.Mounter {
	if n.cfg.Settings.Runtime != "fake" {
		return nil
	}
	return mount.Folders{}
}

// Run runs the agent on the runtime that the flags name until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	defer n.readKernel()()
	if n.cfg.Settings.Runtime == "fake" {
		rt := fake.New(fake.Config{Loopback: true})
		n.fake.Store(rt)
		return n.runOn(ctx, rt, runsOn{})
	}
	socket, own := containerd.Locate(ctx, n.cfg.DataDir, n.cfg.Settings.Containerd)
	if own {
		return n.runOnChild(ctx)
	}
	if err := containerd.Await(ctx, socket, clock.RealClock{}, n.Log); err != nil {
		return err
	}
	rt, err := cri.New(cri.Config{Socket: socket, Kernel: n.kernel, Log: n.Log})
	if err != nil {
		return err
	}
	return n.runOn(ctx, rt, runsOn{cgroups: containerd.CgroupRoot(n.cfg.DataDir)})
}

// readKernel reads the kernel's log until stop is called. Where that must not be
// read, only the runtime tells of processes killed for want of memory.
func (n *Node) readKernel() (stop func()) {
	kernel, err := oom.Open("/dev/kmsg")
	if err != nil {
		n.Log.Warn("the kernel's log cannot be read: there will be no events SystemOOM, and reasons OOMKilled as far as containerd knows", zap.Error(err))
		return func() {}
	}
	n.kernel = kernel
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	guard.Logging(n.Log).Go(&reader, "kernel log", func() {
		if err := kernel.Run(ctx); err != nil {
			n.Log.Warn("no more kills for want of memory are known", zap.Error(err))
		}
	})
	return func() { cancel(); reader.Wait() }
}

// runOnChild runs a containerd of our own beneath the agent; it stops after it.
func (n *Node) runOnChild(ctx context.Context) error {
	child, err := containerd.New(containerd.Config{DataDir: n.cfg.DataDir, MaxPods: n.cfg.Settings.MaxPods, Services: n.cfg.Services, Systemd: n.cfg.Settings.Cgroups.Driver == cgroup.Systemd, Log: n.Log.Named("containerd")})
	if err != nil {
		return err
	}
	rt, err := cri.New(cri.Config{Socket: child.Socket(), Snapshotter: child.Snapshotter(), StateDir: child.StateDir(), Kernel: n.kernel, Log: n.Log})
	if err != nil {
		return err
	}
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, groupCtx := guard.With(ctx)
	group.Do(func() (err error) {
		guard.Logging(n.Log).Keep(below, clock.RealClock{}, "containerd", func() { err = child.Run(below) })
		return err
	})
	group.Do(func() error {
		defer stop()
		return n.runOn(groupCtx, rt, runsOn{cgroups: containerd.CgroupRoot(n.cfg.DataDir), sandboxImage: image.PauseRef})
	})
	return group.Wait()
}

// units are systemd, if it is to make the cgroups; nil: we do.
func (n *Node) units() (units cgroup.Units, hangUp func()) {
	if n.cfg.Settings.Cgroups.Driver != cgroup.Systemd {
		return nil, func() {}
	}
	m := systemd.New(nil)
	return m, m.Close
}

// runsOn is what is known of a runtime.
type runsOn struct {
	cgroups      string // the one that pods live below; empty: none of ours
	sandboxImage string // empty: not known
}

// runOn runs the agent and closes rt after it.
func (n *Node) runOn(ctx context.Context, rt runtime.Runtime, on runsOn) error {
	own := prometheus.NewRegistry()
	if err := n.Metrics.Register(own); err != nil { // unchecked: it is empty as yet
		return errors.Join(err, rt.Close())
	}
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	dropped, err := record.NewMetrics(n.Metrics)
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	events := record.New(n.Client, "kubelet", n.cfg.Settings.NodeName, clock.RealClock{}, dropped)
	units, hangUp := n.units()
	defer hangUp()
	a, err := agent.New(agent.Deps{
		Client: n.Client, Runtime: rt, Log: n.Log, Recorder: events, Metrics: own, Gather: prometheus.Gatherers{own, process}, Mounter: n.mounter(),
		Complete: func(pod *corev1.Pod) error { return n.Complete(pod) }, WatchMemory: host.WatchMemory, WatchUsage: host.WatchUsage, Kernel: n.kernel, Units: units,
		NotifyWrites: func() (logs.Notifier, error) { return logs.NewInotify() },
	}, agent.Config{
		NodeName: n.cfg.Settings.NodeName, Server: n.cfg.Server, DataDir: n.cfg.DataDir, ImageDir: n.path("images"), ManifestDir: n.path("manifests"), CgroupRoot: on.cgroups, SandboxImage: on.sandboxImage, PodMaxPIDs: n.cfg.Settings.Cgroups.MaxPIDs,
		StateRestored: n.cfg.Restored, Garbage: n.cfg.Settings.Garbage, Logs: n.cfg.Settings.Logs, Eviction: n.cfg.Settings.evictions, Pulls: n.cfg.Settings.Pulls, ClusterDNS: n.cfg.Settings.Cluster.DNS, ClusterDomain: n.cfg.Settings.Cluster.Domain, MaxPods: n.cfg.Settings.MaxPods, Reserve: n.cfg.Settings.Reserve, Security: n.cfg.Settings.Security, CPUs: n.cfg.Settings.CPUs, Memory: n.cfg.Settings.Memory, Topology: n.cfg.Settings.Topology, PullConfig: n.path("config.json"),
		Configz: n.configz, Port: n.cfg.Port, NoDebugging: !n.cfg.Settings.Kubelet.Debugging,
		Devices: deviceplugin.Config{Dir: n.path("device-plugins"), Watched: n.path("plugins_registry")}, PodResources: n.path("pod-resources", "kubelet.sock"),
	})
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	n.agent.Store(a)
	if n.cfg.Restored != "" {
		n.event(events)(corev1.EventTypeWarning, "StateRestored", n.cfg.Restored)
	}
	stop := n.delayShutdown(ctx, a, n.event(events))
	err = a.Run(ctx)
	stop()
	events.Close()
	return errors.Join(err, rt.Close())
}

// event tells of the node.
func (n *Node) event(events *record.Recorder) func(eventType, reason, message string) {
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.cfg.Settings.NodeName, UID: types.UID(n.cfg.Settings.NodeName)}
	return func(eventType, reason, message string) { events.Reference(node, eventType, reason, "%s", message) }
}

// delayShutdown has the machine wait for the pods when it goes down, if so told,
// until stop is called.
func (n *Node) delayShutdown(ctx context.Context, pods logind.Node, event func(eventType, reason, message string)) (stop func()) {
	if n.cfg.Settings.Shutdown.Off() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	delay := logind.New(logind.Config{Node: pods, Periods: n.cfg.Settings.Shutdown, Event: event, Log: n.Log.Named("shutdown")})
	var running sync.WaitGroup
	g := guard.Logging(n.Log)
	g.Go(&running, "shutdown", func() { g.Keep(ctx, clock.RealClock{}, "shutdown", func() { delay.Run(ctx) }) })
	return func() { cancel(); running.Wait() }
}

func (n *Node) path(name ...string) string {
	return filepath.Join(append([]string{n.cfg.DataDir}, name...)...)
}
