package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host"
	"monopod/agent/host/mount"
	"monopod/agent/host/oom"
	"monopod/agent/images/admin"
	"monopod/agent/logs"
	"monopod/agent/network"
	"monopod/agent/network/ingress"
	"monopod/agent/node/shutdown"
	"monopod/agent/node/shutdown/logind"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/runtime"
	"monopod/agent/runtime/containerd"
	"monopod/agent/runtime/cri"
	"monopod/agent/runtime/fake"
	"monopod/agent/runtime/oci"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/health"
	metricsapi "monopod/apiserver/kit/metrics"
	"monopod/apiserver/kit/record"
)

// NodeConfig configures a Node. DataDir and Settings are required; Settings.Complete must have succeeded.
type NodeConfig struct {
	Settings Settings
	DataDir  string
	Services []netip.Prefix // the ranges of Services' addresses
	// LoadBalancers are the addresses for Services of type LoadBalancer. The node has one while a Service uses it.
	LoadBalancers []netip.Prefix
	Server        netip.AddrPort // address of the API server
	Port          int32          // port of the kubelet's API; 0: only through the API server
	Restored      string         // snapshot from which the state was restored at this start; empty: none
	// PodCIDRsFromNode makes the node use the ranges that the node IPAM controller gives its Node, unless --pod-cidr sets
	// them. Of several nodes that choose by themselves, two may choose the same.
	PodCIDRsFromNode bool
	// Joined: the API server runs on another machine, and publishes the Service of the DNS servers.
	Joined bool
}

// NodeDeps are a Node's dependencies; all but Kinds are required.
type NodeDeps struct {
	Client  client.Client
	Kinds   client.Kinds // the served kinds; nil: the node serves no Gateways
	Metrics prometheus.Registerer
	// Complete sets the defaults of a pod that does not come from the API, and validates it.
	Complete func(client.Object) error
	// Listen serves the API at an address of the pod network until ctx ends, unless pods reach it anyway.
	Listen func(ctx context.Context, at netip.Addr, pods func(netip.Addr) bool) error
	Log    *zap.Logger
}

// Node is the agent and its runtime. The API does not wait for it.
type Node struct {
	NodeDeps
	cfg    NodeConfig
	guard  *guard.Guard // of the goroutines outside of the agent
	kernel *oom.Log     // nil: not readable; set by Run
	agent  atomic.Pointer[Agent]
	fake   atomic.Pointer[fake.Runtime] // nil: the runtime is containerd, or has not started
	// networkSupervisor serves Services; nil: not started, or the pod network is not Monopod's own.
	networkSupervisor atomic.Pointer[follow.Supervisor]
	podNetwork        atomic.Pointer[network.Network] // nil: not started
	ingress           *follow.Supervisor              // nil: there is no ingress controller
	ingressController *ingress.Controller
	gateway           *follow.Supervisor // nil: Gateways are not served
	podNetworkReady   chan struct{}      // closed when podNetwork is set
	started           chan struct{}      // closed when agent is set
}

// NewNode returns a node that does nothing until Run is called.
func NewNode(deps NodeDeps, cfg NodeConfig) *Node {
	g, err := guard.New(deps.Log, clock.RealClock{}, deps.Metrics)
	if err != nil {
		deps.Log.Error("panics outside of the agent are not counted", zap.Error(err))
	}
	n := &Node{NodeDeps: deps, cfg: cfg, guard: g, podNetworkReady: make(chan struct{}), started: make(chan struct{})}
	n.ingress, n.gateway = n.superviseIngress(), n.superviseGateway()
	return n
}

// Find returns the node for streams to its pods if it has the name, otherwise nil.
func (n *Node) Find(name string) (client.Node, error) {
	if name != n.cfg.Settings.NodeName {
		return nil, nil
	}
	if a := n.agent.Load(); a != nil {
		return a, nil
	}
	if n.cfg.Settings.Runtime == NoRuntime {
		return nil, apierrors.NewServiceUnavailable("this server runs without a node (--runtime=none)")
	}
	return nil, apierrors.NewServiceUnavailable("the node is still starting")
}

// Checks are the health of the node and of its network.
func (n *Node) Checks() []health.Check {
	return []health.Check{
		{Name: "pleg", Live: true, Ask: n.PLEG},
		{Name: "agent", Ask: n.Health},
		{Name: "network", Degrades: true, Ask: n.Network},
		{Name: "ingress", Degrades: true, Ask: n.Ingress},
		{Name: "gateway", Degrades: true, Ask: n.Gateway},
	}
}

// PLEG returns nil while relists succeed, or before the start.
func (n *Node) PLEG(context.Context) error {
	if a := n.agent.Load(); a != nil {
		return a.PLEG()
	}
	return nil
}

// Health returns an error that names the parts and the pods that panicked recently.
func (n *Node) Health(context.Context) error {
	err := n.guard.Check()
	if a := n.agent.Load(); a != nil {
		err = errors.Join(err, a.Health())
	}
	return err
}

// Usage returns the usage of the node and its pods.
func (n *Node) Usage(ctx context.Context) (*metricsapi.NodeMetrics, []*metricsapi.PodMetrics, error) {
	if a := n.agent.Load(); a != nil {
		return a.Usage(ctx)
	}
	return nil, nil, nil
}

// Shutdown returns the handler that stops the node's pods. It refuses while the node starts.
func (n *Node) Shutdown() http.Handler {
	return shutdown.Handler(func() shutdown.Node {
		if a := n.agent.Load(); a != nil {
			return a
		}
		return nil
	})
}

// startWait is how long a request for images waits for the node to start, after which it fails: commands that follow
// the server's start need no loop.
const startWait = 10 * time.Second

// Images returns the handler that shows and changes the node's images.
func (n *Node) Images() http.Handler {
	return admin.Handler(func(ctx context.Context) *admin.Admin {
		if n.cfg.Settings.Runtime != NoRuntime {
			select {
			case <-n.started:
			case <-ctx.Done():
			case <-time.After(startWait):
			}
		}
		if a := n.agent.Load(); a != nil {
			return a.ImageAdmin()
		}
		return nil
	})
}

// Holds reports whether a pod of the fake runtime has the address. Pods on containerd are reached over the machine's
// network.
func (n *Node) Holds(ip netip.Addr) bool {
	rt := n.fake.Load()
	return rt != nil && rt.Holds(ip)
}

// Dial connects to the pods of the fake runtime.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if rt := n.fake.Load(); rt != nil {
		return rt.Dial(ctx, network, address)
	}
	return nil, errors.New("no pod runs on the fake runtime")
}

// Run runs the agent on the configured runtime, and the controllers of Ingresses and Gateways if there are any, until
// ctx ends.
func (n *Node) Run(ctx context.Context) error {
	if n.cfg.Settings.Runtime != NoRuntime {
		defer n.readKernel()()
	}
	group, ctx := guard.With(ctx)
	for _, s := range []*follow.Supervisor{n.ingress, n.gateway} {
		if s != nil {
			group.Do(func() error { return s.Run(ctx) })
		}
	}
	group.Do(func() error { return n.runWithRuntime(ctx) })
	return group.Wait()
}

func (n *Node) runWithRuntime(ctx context.Context) error {
	if n.cfg.Settings.Runtime == NoRuntime {
		<-ctx.Done()
		return nil
	}
	if n.cfg.Settings.Runtime == "fake" {
		rt := fake.New(fake.Config{Loopback: true})
		n.fake.Store(rt)
		return n.runAgent(ctx, rt, runtimeConfig{ownPodCIDRs: func() bool { return true }})
	}
	if n.copiesHosts() {
		if written, err := host.WriteHosts("/"); err != nil {
			n.Log.Warn("failed to write /etc/hosts, which containerd copies for each pod", zap.Error(err))
		} else if written {
			n.Log.Info("the machine had no /etc/hosts, which containerd copies for each pod; it was written")
		}
	}
	socket := n.cfg.Settings.Containerd.Socket()
	if socket == "" {
		if err := containerd.CheckMoved(ctx, n.cfg.DataDir); err != nil {
			return err
		}
		return n.runWithChild(ctx)
	}
	if err := containerd.Await(ctx, socket, clock.RealClock{}, n.Log); err != nil {
		return err
	}
	rt, err := cri.New(cri.Config{Socket: socket, Users: n.users, Kernel: n.kernel, Log: n.Log, Guard: n.guard})
	if err != nil {
		return err
	}
	return n.runAgent(ctx, rt, runtimeConfig{cgroups: containerd.CgroupRoot(n.cfg.DataDir), needs: n.needs})
}

// copiesHosts reports whether containerd copies the machine's /etc/hosts for each pod: the bundled one does not.
func (n *Node) copiesHosts() bool { return !n.cfg.Settings.Containerd.UseBundle() }

// users returns why pods cannot have user namespaces on this machine; nil if they can.
func (n *Node) users() error { return containerd.UserNamespaces(n.cfg.DataDir) }

// needs returns why no pod on containerd can start on this machine; nil if nothing is missing.
func (n *Node) needs() error { return host.Needs("/", n.copiesHosts()) }

// readKernel reads the kernel's log until stop is called. If the log is not readable, only the runtime reports OOM
// kills.
func (n *Node) readKernel() (stop func()) {
	kernel, err := oom.Open("/dev/kmsg")
	if err != nil {
		n.Log.Warn("cannot read the kernel log: SystemOOM events are not written, and OOMKilled depends on containerd alone",
			zap.Error(err))
		return func() {}
	}
	n.kernel = kernel
	ctx, cancel := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	n.guard.Go(&reader, "kernel log", func() {
		n.guard.Keep(ctx, clock.RealClock{}, "kernel log", func() {
			if err := kernel.Run(ctx); err != nil {
				n.Log.Warn("cannot read the kernel log any longer: OOM kills are not reported", zap.Error(err))
			}
		})
	})
	return func() { cancel(); reader.Wait() }
}

// roomInterval is the time between two attempts to start containerd on a full disk.
const roomInterval = 5 * time.Second

// newChild waits while the disk has no room for containerd. The API answers meanwhile, so that objects can be deleted.
func (n *Node) newChild(ctx context.Context, cfg containerd.Config) (*containerd.Child, error) {
	for logged := false; ; logged = true {
		child, err := containerd.New(cfg)
		if !errors.Is(err, unix.ENOSPC) {
			return child, err
		}
		if !logged {
			n.Log.Error("the disk is full: pods start once there is room", zap.Error(err))
		}
		if !backoff.Sleep(ctx, clock.RealClock{}, roomInterval) {
			return nil, err
		}
	}
}

// runWithChild starts a containerd and runs the agent on it. The containerd stops after the agent.
func (n *Node) runWithChild(ctx context.Context) error {
	s := &n.cfg.Settings
	var ranges func(context.Context, []netip.Prefix) ([]netip.Prefix, error)
	if !n.choosesPodCIDRs() {
		ranges = n.givenPodCIDRs
	}
	child, err := n.newChild(ctx, containerd.Config{
		DataDir: n.cfg.DataDir, Options: s.Containerd, MaxPods: s.MaxPods, Pods: s.Network.ranges, PodRanges: ranges,
		Services: n.cfg.Services, CNI: s.Network.isCNI(), Admit: n.admitPod, Systemd: s.Cgroups.Driver == cgroup.Systemd,
		Log: n.Log.Named("containerd"), Guard: n.guard,
	})
	if err != nil {
		return err
	}
	rt, err := cri.New(cri.Config{
		Socket: child.Socket(), Snapshotter: child.Snapshotter(), StateDir: child.StateDir(), Users: n.users,
		Kernel: n.kernel, Log: n.Log, Guard: n.guard,
	})
	if err != nil {
		return err
	}
	served, err := n.serveServices(child)
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, groupCtx := guard.With(ctx)
	group.Do(func() error { return served.Run(groupCtx) })
	group.Do(func() (err error) {
		n.guard.Keep(below, clock.RealClock{}, "containerd", func() { err = child.Run(below) })
		return err
	})
	group.Do(func() error {
		defer stop()
		return n.runAgent(groupCtx, rt, runtimeConfig{
			cgroups: containerd.CgroupRoot(n.cfg.DataDir), sandboxImage: oci.PauseRef, ownNetwork: true, needs: n.needs,
			podCIDRs: func() []string { return n.podCIDRs(child) }, ownPodCIDRs: func() bool { return n.ownPodCIDRs(child) },
		})
	})
	return group.Wait()
}

// runtimeConfig contains the part of the agent's configuration that depends on the runtime.
type runtimeConfig struct {
	cgroups      string          // parent of pods' cgroups; empty: none
	sandboxImage string          // empty: not known
	ownNetwork   bool            // the pods' network
	podCIDRs     func() []string // the ranges of pods; nil: not known
	ownPodCIDRs  func() bool     // reports whether the node chooses them; nil: it does not
	needs        func() error    // of every pod; nil: nothing
}

// runAgent runs the agent and closes rt after it.
func (n *Node) runAgent(ctx context.Context, rt runtime.Runtime, on runtimeConfig) error {
	registry := prometheus.NewRegistry()
	if err := n.Metrics.Register(registry); err != nil { // unchecked: it is empty as yet
		return errors.Join(err, rt.Close())
	}
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	dropped, err := record.NewMetrics(n.Metrics)
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	s := &n.cfg.Settings
	events := record.New(record.Config{
		Client: n.Client, Component: "kubelet", Host: s.NodeName, Clock: clock.RealClock{}, Metrics: dropped, Guard: n.guard,
	})
	cluster := n.clusterDNS(on.ownNetwork)
	server := n.cfg.Server
	if on.ownNetwork {
		server = netip.AddrPort{} // pods use the Service kubernetes
	}
	var units cgroup.Units // nil: systemd does not create the cgroups
	if s.Cgroups.Driver == cgroup.Systemd {
		systemd := cgroup.NewSlices(nil)
		defer systemd.Close()
		units = systemd
	}
	var mounter volume.Mounter // nil: the kernel mounts
	if s.Runtime == "fake" {
		mounter = mount.Folders{}
	}
	a, err := New(Deps{
		Client: n.Client, Runtime: rt, Log: n.Log, Recorder: events, Metrics: registry,
		Gather: prometheus.Gatherers{registry, process}, Mounter: mounter,
		Complete: func(pod *corev1.Pod) error { return n.Complete(pod) }, WatchMemory: host.WatchMemory,
		WatchUsage: host.WatchUsage, Kernel: n.kernel, Units: units,
		Network: n.Network, Needs: on.needs,
		NotifyWrites: func() (logs.Notifier, error) { return logs.NewInotify() },
	}, Config{
		NodeName: s.NodeName, DataDir: n.cfg.DataDir, StateRestored: n.cfg.Restored, Joined: n.cfg.Joined,
		Server: server, Families: s.Network.families(n.cfg.Services), PodCIDRs: on.podCIDRs, OwnPodCIDRs: on.ownPodCIDRs,
		ClusterDNS: cluster.DNS, ClusterDomain: cluster.Domain,
		ImageDir: n.path("images"), ManifestDir: n.path("manifests"), PullConfig: n.path("config.json"),
		CgroupRoot: on.cgroups, SandboxImage: on.sandboxImage, PodMaxPIDs: s.Cgroups.MaxPIDs, MaxPods: s.MaxPods,
		MemoryPolicy: s.Cgroups.Memory,
		Garbage:      s.Garbage, Logs: s.Logs, Eviction: s.evictions, Pulls: s.Pulls, Verify: s.Verify,
		Reserve: s.Reserve, Security: s.Security, CPUs: s.CPUs, Memory: s.Memory, Topology: s.Topology,
		Devices: deviceplugin.Config{Dir: n.path("device-plugins")}, Plugins: n.path("plugins_registry"),
		PodResources: n.path("pod-resources", "kubelet.sock"),
		Configz:      n.configz, Port: n.cfg.Port, NoDebugging: !s.Kubelet.Debugging,
		Terminal: s.Kubelet.Terminal,
	})
	if err != nil {
		return errors.Join(err, rt.Close())
	}
	if n.agent.Swap(a) == nil {
		close(n.started)
	}
	if n.cfg.Restored != "" {
		n.event(events)(corev1.EventTypeWarning, "StateRestored", n.cfg.Restored)
	}
	stop := n.delayShutdown(ctx, a, n.event(events))
	err = a.Run(ctx)
	stop()
	events.Close()
	return errors.Join(err, rt.Close())
}

// event returns a function that writes an event about the node.
func (n *Node) event(events *record.Recorder) func(eventType, reason, message string) {
	name := n.cfg.Settings.NodeName
	node := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
	return func(eventType, reason, message string) { events.Reference(node, eventType, reason, "%s", message) }
}

// delayShutdown delays shutdowns of the machine until the pods have ended, if that is configured. It works until stop
// is called.
func (n *Node) delayShutdown(ctx context.Context, pods logind.Node,
	event func(eventType, reason, message string)) (stop func()) {
	if n.cfg.Settings.Shutdown.Off() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	delay := logind.New(logind.Config{
		Node: pods, Periods: n.cfg.Settings.Shutdown, Event: event, Guard: n.guard, Log: n.Log.Named("shutdown"),
	})
	var running sync.WaitGroup
	n.guard.Go(&running, "shutdown", func() {
		n.guard.Keep(ctx, clock.RealClock{}, "shutdown", func() { delay.Run(ctx) })
	})
	return func() { cancel(); running.Wait() }
}

func (n *Node) path(name ...string) string {
	return filepath.Join(append([]string{n.cfg.DataDir}, name...)...)
}
