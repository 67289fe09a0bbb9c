package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/admission"
	"monopod/agent/admission/security"
	"monopod/agent/images/collector"
	"monopod/agent/images/garbage"
	"monopod/agent/images/image"
	"monopod/agent/images/preload"
	"monopod/agent/logs"
	"monopod/agent/logs/logdir"
	"monopod/agent/node/registrar"
	"monopod/agent/node/stats"
	"monopod/agent/node/stream"
	"monopod/agent/pod"
	"monopod/agent/pod/probe"
	"monopod/agent/pod/statuswriter"
	"monopod/agent/pod/turns"
	"monopod/agent/pressure/eviction"
	"monopod/agent/pressure/evictor"
	"monopod/agent/pressure/oom"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/placement"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/agent/resources/userns"
	"monopod/agent/runtime"
	"monopod/agent/runtime/pleg"
	"monopod/agent/source"
	"monopod/agent/source/mirror"
	"monopod/agent/source/static"
	"monopod/agent/storage/claims"
	"monopod/agent/storage/mount"
	"monopod/agent/storage/token"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// Recorder writes events; it must not wait. package record implements it.
type Recorder interface {
	Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Deps are what an agent works with. Client and Runtime are required.
type Deps struct {
	Client   client.Client
	Runtime  runtime.Runtime
	Clock    clock.WithTicker      // nil: the real one
	Log      *zap.Logger           // nil: none
	Recorder Recorder              // nil: no events
	Metrics  prometheus.Registerer // nil: none
	// Gather is what /metrics of the node shows; nil: nothing.
	Gather  prometheus.Gatherer
	Mounter volume.Mounter // nil: the kernel's
	// Dial reaches pods for probes and hooks; nil: the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// WatchMemory calls short when the kernel reports that memory is short, until
	// ctx ends, as host.WatchMemory does; nil: nobody does.
	WatchMemory func(ctx context.Context, short func()) error
	// WatchUsage calls passed once more memory is in use by what left said last, as
	// host.WatchUsage does; nil: nobody does.
	WatchUsage func(ctx context.Context, left <-chan int64, passed func()) error
	// Kernel is the kernel's log, for processes that it killed for want of memory;
	// nil: nobody tells of them.
	Kernel *oom.Log
	// Units make pods' cgroups slices of systemd; nil: the agent makes cgroups.
	Units cgroup.Units
	// Signals reads what the node has left; nil: the machine's own.
	Signals func() eviction.Observations
	// Complete fills in the defaults of a pod that does not come from the API and
	// finds what is wrong with it. Static pods need it.
	Complete func(*corev1.Pod) error
	// Providers give containers what they have for themselves, beside processors and
	// memory: devices. They may be used before New returns.
	Providers []topology.Provider
	// Notify tells of changes in a folder of static pods; nil: static.Notify.
	Notify func(dir string) (changed <-chan struct{}, stop func(), err error)
	// NotifyWrites tells of containers that begin to write; nil: their files are looked
	// at every few seconds only.
	NotifyWrites func() (logs.Notifier, error)
}

// Config is an agent's settings. NodeName and DataDir are required; zero values
// of the others are upstream's defaults.
type Config struct {
	NodeName string
	DataDir  string            // pods/ and logs/ lie below it
	NodeIP   string            // empty: found
	Labels   map[string]string // more labels of the node
	Taints   []corev1.Taint    // of a node that registers for the first time
	MaxPods  int               // 110

	// Server is where the API server listens, for containers' environment; zero: pods
	// reach it at the address of its Service.
	Server netip.AddrPort

	// Instance tells the sandboxes of this agent from others' in one containerd;
	// empty: derived from DataDir and NodeName.
	Instance string

	// ImageDir holds archives to import, now and as they arrive; empty: none.
	ImageDir string

	// ManifestDir holds static pods, one a file; empty: none.
	ManifestDir string

	// StateRestored says what happened when a snapshot took the place of the state
	// before this start; empty: it did not. The node's condition of that name.
	StateRestored string

	// CgroupRoot is where pods' cgroups go; empty: the runtime's own place and no
	// pod limits.
	CgroupRoot  string
	CgroupMount string // /sys/fs/cgroup
	// SandboxImage is the one that sandboxes are made from; empty: not known.
	SandboxImage string
	PodMaxPIDs   int64 // processes of a pod; 0 and less: any number

	ClusterDNS    []string
	ClusterDomain string
	ResolvConf    string // /etc/resolv.conf

	HeartbeatPeriod time.Duration // 10 s: lease renewed, node conditions checked
	StatusPeriod    time.Duration // 5 min: node status written though nothing changed
	LeaseDuration   time.Duration // 40 s
	SyncFrequency   time.Duration // 1 min ± half: a pod looked at though nothing happened
	RelistPeriod    time.Duration // 300 s: the runtime listed though no event was lost

	// Garbage says what may stay of dead containers and unused images; the zero
	// value is garbage.Default.
	Garbage garbage.Policy
	// Logs says when containers' logs are rotated; the zero value is
	// logs.DefaultRotation.
	Logs logs.Rotation
	// Pulls says how many images are pulled at a time; the zero value: one.
	Pulls image.Limits
	// PullConfig is a file with the node's credentials for registries, as docker
	// login writes it; empty: none.
	PullConfig string
	// Eviction says when pods go because the node runs out of something; the zero
	// value: never.
	Eviction eviction.Policy
	// Reserve is what the node keeps for itself of its capacity; the zero value:
	// nothing.
	Reserve reserve.Config
	// CPUs says who gets processors for itself; the zero value: nobody does.
	CPUs cpumanager.Config
	// Memory says who gets memory on certain NUMA nodes; the zero value: nobody does.
	Memory memorymanager.Config
	// Topology says how close what containers have for themselves must lie; the zero
	// value: nobody looks.
	Topology topology.Config
	// Devices says where device plugins are served; without a Dir they are not. The
	// agent fills in all but the folders and how sockets are reached.
	Devices deviceplugin.Config
	// PodResources is the socket of the API that tells which pod has which devices,
	// processors and memory; empty: it is not served.
	PodResources string
	// SysRoot is where the machine's topology is read, /sys.
	SysRoot string
	// Security is what the node allows pods, and what it asks of them.
	Security security.Policy
	// Machine is what enforces it; the zero value: this one.
	Machine security.Host
	// Configz is the KubeletConfiguration in force, for whoever asks the node; nil:
	// an empty one.
	Configz func() any
	// Port is where the node serves what a kubelet does; 0: only through the API.
	Port int32
	// NoDebugging leaves out logs, streams, commands and profiles there.
	NoDebugging bool
	// ImageRoot is on the file system that images lie on, where the runtime does not
	// say; empty: DataDir.
	ImageRoot string
}

func (c Config) withDefaults() (Config, error) {
	if c.NodeName == "" || c.DataDir == "" {
		return c, errors.New("agent: NodeName and DataDir are required")
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("agent: %w", err)
	}
	c.DataDir = dir
	def(&c.MaxPods, 110)
	def(&c.Instance, instance(c.DataDir, c.NodeName))
	def(&c.CgroupMount, "/sys/fs/cgroup")
	def(&c.ResolvConf, "/etc/resolv.conf")
	def(&c.HeartbeatPeriod, 10*time.Second)
	def(&c.StatusPeriod, 5*time.Minute)
	def(&c.LeaseDuration, 40*time.Second)
	def(&c.SyncFrequency, time.Minute)
	def(&c.RelistPeriod, 300*time.Second)
	def(&c.Garbage, garbage.Default())
	def(&c.Logs, logs.DefaultRotation())
	def(&c.ImageRoot, c.DataDir)
	def(&c.SysRoot, "/sys")
	if c.Configz == nil {
		c.Configz = func() any { return struct{}{} }
	}
	return c, nil
}

func def[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func instance(dataDir, node string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(dataDir + "\x00" + node))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Agent makes one node run the pods bound to it. It also answers as client.Node.
type Agent struct {
	Deps
	*stream.Streams // answers as client.Node
	cfg             Config
	log             *zap.Logger

	hostIPs  []string
	capacity corev1.ResourceList
	// allocatable is what pods may have of it.
	allocatable corev1.ResourceList
	resolv      *cri.DNSConfig
	cgroups     *cgroup.Manager // nil: none
	pageSizes   []int64         // of huge pages, where there are cgroups
	images      *image.Puller
	caller      probe.Caller
	tokens      *token.Keeper
	status      *statuswriter.Writer
	logs        *logdir.Dir
	node        *registrar.Registrar
	collect     *collector.Collector
	imagesAt    *image.Place
	preload     *preload.Importer
	rotate      *logs.Rotator
	evict       *evictor.Evictor
	drain       *drain
	stats       *stats.Source
	source      *source.Source
	metrics     *metrics
	probes      *probe.Metrics
	probed      *prometheus.Registry // has probes
	server      http.Handler
	pleg        *pleg.Health
	admit       []admission.Handler
	users       *userns.Ranges
	claims      *claims.Claims
	// placement gives containers what they have for themselves.
	placement *placement.Placement

	manifests *static.Source
	mirrors   *mirror.Mirrors
	statics   statics

	guard   *guard.Guard
	workers sync.WaitGroup
	beside  sync.WaitGroup // what the loop waits for, on goroutines of their own
	lists   lists
	desk    *desk
	swept   chan struct{} // closed when the pods of the API are known
	starts  *turns.Turns  // for those who start from nothing
	owners  owners        // of what the runtime has
	podNode *pod.Node     // what pods have in common

	mu    sync.RWMutex // guards what follows
	pods  map[types.UID]*pod.Pod
	names map[types.NamespacedName]*pod.Pod // the newest of the name
}

var _ client.Node = (*Agent)(nil)

// So many pods start from nothing at a time: more would only share the same
// processors, and all of them the memory that a start needs. A start that takes
// longer no longer holds up others.
const (
	startsAtOnce = 8
	longestStart = 2 * time.Second
)

// New prepares an agent; Run starts it.
func New(deps Deps, cfg Config) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if deps.Client == nil || deps.Runtime == nil {
		return nil, errors.New("agent: Client and Runtime are required")
	}
	a := &Agent{
		Deps: deps.withDefaults(), cfg: cfg,
		pods:   map[types.UID]*pod.Pod{},
		names:  map[types.NamespacedName]*pod.Pod{},
		swept:  make(chan struct{}),
		lists:  newLists(),
		desk:   newDesk(),
		starts: turns.New(startsAtOnce, longestStart),
	}
	if a.metrics, err = newMetrics(a.Metrics, a); err != nil {
		return nil, err
	}
	a.Runtime = runtime.Bounded(a.Runtime, a.metrics.operation)
	a.logs = logdir.New(filepath.Join(cfg.DataDir, "logs"), a.Log)
	a.imagesAt = image.NewPlace(a.Runtime, cfg.ImageRoot)
	if a.Signals == nil {
		a.Signals = func() eviction.Observations { return evictor.Machine(cfg.DataDir, a.imagesAt.Root()) }
	}
	a.log = a.Log
	if a.guard, err = guard.New(a.log, a.Clock, a.Metrics); err != nil {
		return nil, err
	}
	if err := a.configured(cfg); err != nil {
		return nil, err
	}
	return a, a.prepare()
}

func (d Deps) withDefaults() Deps {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	if d.Recorder == nil {
		d.Recorder = silent{}
	}
	if d.Metrics == nil {
		d.Metrics = prometheus.NewRegistry()
	}
	if d.Gather == nil {
		d.Gather = prometheus.NewRegistry()
	}
	if d.Mounter == nil {
		d.Mounter = mount.Kernel{}
	}
	return d
}

type silent struct{}

func (silent) Reference(corev1.ObjectReference, string, string, string, ...any) {}

// Run registers the node and runs its pods until ctx ends; then it returns and
// leaves the pods running. It fails only where nothing could ever work.
func (a *Agent) Run(ctx context.Context) error {
	if err := errors.Join(os.MkdirAll(a.podsDir(), podsMode), os.Chmod(a.podsDir(), podsMode), a.logs.Make()); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := a.enforce(); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	a.evict.Look() // before pods are let in
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	for _, p := range a.parts() {
		a.guard.Go(&parts, p.name, func() { a.guard.Keep(ctx, a.Clock, p.name, func() { p.run(ctx) }) })
	}
	a.loop(ctx)
	cancel()
	a.workers.Wait()
	a.status.Wait()
	parts.Wait()
	a.beside.Wait()
	if a.cgroups != nil {
		a.cgroups.Close() // folders still in use stay
	}
	return nil
}

// part is what runs beside the loop, with the name that it has in metrics and health.
type part struct {
	name string
	run  func(context.Context)
}

func (a *Agent) parts() []part {
	return []part{
		{"node", a.node.Run}, {"source", a.source.Run}, {"volumes", a.provideVolumes}, {"manifests", a.manifests.Run}, {"mirrors", a.mirrors.Run},
		{"preload", a.preload.Run}, {"collector", a.collect.Run}, {"logs", a.rotate.Run}, {"eviction", a.evict.Run}, {"memory", a.evict.Watch},
		{"drain", a.drain.run}, {"oom", a.watchOOM}, {"placement", a.placement.Run}, {"admission", a.admitAll},
	}
}

// Health says which parts of the agent, and which pods' workers, have panicked a short
// time ago.
func (a *Agent) Health() error { return a.guard.Check() }

// podsMode is of the folder of the pods' folders, whose secrets are readable to all
// who get there.
const podsMode = 0o750

func (a *Agent) podsDir() string { return filepath.Join(a.cfg.DataDir, "pods") }

func (a *Agent) podDir(uid types.UID) string { return filepath.Join(a.podsDir(), string(uid)) }

// events about a pod, or one of its containers.
func (a *Agent) event(pod *corev1.Pod, container, eventType, reason, format string, args ...any) {
	ref := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
		UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	if container != "" {
		ref.FieldPath = fieldPath(pod, container)
	}
	a.Recorder.Reference(ref, eventType, reason, format, args...)
}

func fieldPath(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}
