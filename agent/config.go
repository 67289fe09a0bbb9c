package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host/mount"
	"monopod/agent/host/oom"
	"monopod/agent/images/gc"
	"monopod/agent/images/pull"
	"monopod/agent/logs"
	"monopod/agent/podapi/security"
	"monopod/agent/pressure/eviction"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/agent/runtime"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/client"
)

// Recorder writes events and must not block. Package record implements it.
type Recorder interface {
	Reference(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Deps are the agent's dependencies. Client and Runtime are required.
type Deps struct {
	Client   client.Client
	Runtime  runtime.Runtime
	Clock    clock.WithTicker      // nil: the real one
	Log      *zap.Logger           // nil: none
	Recorder Recorder              // nil: no events
	Metrics  prometheus.Registerer // nil: none
	// Needs returns what every pod needs and the machine lacks; nil: not checked.
	Needs func() error
	// Gather collects the node's metrics; nil: none.
	Gather  prometheus.Gatherer
	Mounter volume.Mounter // nil: the kernel's
	// Dial connects to pods for probes and hooks; nil: over the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// WatchMemory calls short when the kernel reports memory pressure, until ctx ends, like host.WatchMemory; nil: not
	// watched.
	WatchMemory func(ctx context.Context, short func()) error
	// WatchUsage calls passed when memory usage has grown by the last value from left, like host.WatchUsage; nil: not
	// watched.
	WatchUsage func(ctx context.Context, left <-chan int64, passed func()) error
	// Kernel is the kernel's log, which reports OOM kills; nil: not read.
	Kernel *oom.Log
	// Units create pods' cgroups as systemd slices; nil: the agent creates cgroups.
	Units cgroup.Units
	// Network returns why Services or NetworkPolicies do not work on the node, or nil; nil: not checked.
	Network func(ctx context.Context) error
	// Signals reads the eviction signals; nil: from the machine.
	Signals func() eviction.Observations
	// Complete sets defaults of a pod that does not come from the API and validates it. Static pods need it.
	Complete func(*corev1.Pod) error
	// Providers allocate devices to containers. They may be called before New returns.
	Providers []topology.Provider
	// Notify reports changes in the folder of static pods; nil: static.Notify.
	Notify func(dir string) (changed <-chan struct{}, stop func(), err error)
	// NotifyWrites returns a notifier of writes to log files; nil: their sizes are only checked periodically.
	NotifyWrites func() (logs.Notifier, error)
}

// Config is an agent's configuration. NodeName and DataDir are required; zero values of the others are
// upstream's defaults.
type Config struct {
	NodeName string
	DataDir  string // parent folder of pods/ and logs/
	NodeIP   string // empty: detected, one of each of Families
	// Families are the IP families of pods; the first is the primary one. Empty: IPv4.
	Families []corev1.IPFamily
	// PodCIDRs returns the ranges of pods' addresses, or nil while they are unknown; nil: always unknown.
	PodCIDRs func() []string
	// OwnPodCIDRs reports whether the node chooses these ranges itself; nil: the node IPAM controller chooses them.
	OwnPodCIDRs func() bool
	Labels      map[string]string // additional labels of the node
	Taints      []corev1.Taint    // taints at its first registration
	MaxPods     int               // 110

	// Server is the address of the API server in the environment of containers; zero: the Service kubernetes.
	Server netip.AddrPort

	// Joined says that the API server is on another machine and lets the agent read only what its pods need.
	Joined bool

	// Instance distinguishes the sandboxes of agents that share a containerd; empty: a hash of DataDir and NodeName.
	Instance string

	// ImageDir contains image archives, which are imported at start and when they appear; empty: none.
	ImageDir string

	// ManifestDir contains static pods, one per file; empty: none.
	ManifestDir string

	// StateRestored is the message of the node condition StateRestored, after a snapshot replaced the state at
	// this start; empty: no condition.
	StateRestored string

	// CgroupRoot is the parent of pods' cgroups; empty: the runtime's default, without pod limits.
	CgroupRoot  string
	CgroupMount string // /sys/fs/cgroup
	// SandboxImage is the image of sandboxes; empty: not known.
	SandboxImage string
	PodMaxPIDs   int64 // maximum number of processes of a pod; 0 or less: no limit
	MemoryPolicy cgroup.MemoryPolicy

	ClusterDNS    []string
	ClusterDomain string
	ResolvConf    string // /etc/resolv.conf

	HeartbeatPeriod time.Duration // 10 s: interval of lease renewal and node conditions
	StatusPeriod    time.Duration // 5 min: interval at which an unchanged node status is written
	LeaseDuration   time.Duration // 40 s
	SyncFrequency   time.Duration // 1 min ± half: resync interval of a pod
	RelistPeriod    time.Duration // 300 s: interval of relists without lost events

	// Garbage is the policy for dead containers and unused images; the zero value is gc.Default.
	Garbage gc.Policy
	// Logs is the policy of log rotation; the zero value is logs.DefaultRotation.
	Logs logs.Rotation
	// Pulls is the number of parallel image pulls; the zero value: one.
	Pulls pull.Limits
	// Verify is the policy for images that are present; the zero value is upstream's.
	Verify pull.Verification
	// PullConfig is a file with the node's registry credentials, as docker login writes it; empty: none.
	PullConfig string
	// Eviction contains the eviction thresholds; the zero value disables eviction.
	Eviction eviction.Policy
	// Reserve is the part of the capacity that is reserved; the zero value: nothing.
	Reserve reserve.Config
	// CPUs is the CPU manager's policy; the zero value is none.
	CPUs cpumanager.Config
	// Memory is the memory manager's policy; the zero value is None.
	Memory memorymanager.Config
	// Topology is the topology manager's policy; the zero value is none.
	Topology topology.Config
	// Devices configures device plugins; without a Dir they are disabled. The agent sets all fields except the
	// folders and the dialer.
	Devices deviceplugin.Config
	// Plugins is the folder in which device plugins and DRA drivers create their sockets; empty: none. It needs Devices.
	Plugins string
	// PodResources is the socket of the podresources API; empty: disabled.
	PodResources string
	// SysRoot is the folder from which the machine's topology is read: /sys.
	SysRoot string
	// Security is the node's policy for pods' security settings.
	Security security.Policy
	// Machine describes the machine's security modules; the zero value: detected.
	Machine security.Host
	// Configz is the effective KubeletConfiguration, for /configz; nil: an empty one.
	Configz func() any
	// Port is the port of the kubelet's API; 0: only through the API server.
	Port int32
	// NoDebugging disables logs, streams, commands and profiles in the kubelet's API.
	NoDebugging bool
	// Terminal serves shells on this machine to admins.
	Terminal bool
	// ImageRoot is a path on the file system of images, if the runtime does not report it; empty: DataDir.
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
	setDefault(&c.MaxPods, 110)
	setDefault(&c.Instance, instance(c.DataDir, c.NodeName))
	setDefault(&c.CgroupMount, "/sys/fs/cgroup")
	setDefault(&c.ResolvConf, "/etc/resolv.conf")
	setDefault(&c.HeartbeatPeriod, 10*time.Second)
	setDefault(&c.StatusPeriod, 5*time.Minute)
	setDefault(&c.LeaseDuration, 40*time.Second)
	setDefault(&c.SyncFrequency, time.Minute)
	setDefault(&c.RelistPeriod, 300*time.Second)
	setDefault(&c.Garbage, gc.Default())
	setDefault(&c.Logs, logs.DefaultRotation())
	setDefault(&c.ImageRoot, c.DataDir)
	setDefault(&c.SysRoot, "/sys")
	if c.Configz == nil {
		c.Configz = func() any { return struct{}{} }
	}
	return c, nil
}

func setDefault[T comparable](p *T, value T) {
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

func (d Deps) withDefaults() Deps {
	if d.Clock == nil {
		d.Clock = clock.RealClock{}
	}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	if d.Recorder == nil {
		d.Recorder = noEvents{}
	}
	if d.Metrics == nil {
		d.Metrics = prometheus.NewRegistry()
	}
	if d.Network == nil {
		d.Network = func(context.Context) error { return nil }
	}
	if d.Needs == nil {
		d.Needs = func() error { return nil }
	}
	if d.Gather == nil {
		d.Gather = prometheus.NewRegistry()
	}
	if d.Mounter == nil {
		d.Mounter = mount.Kernel{}
	}
	return d
}

type noEvents struct{}

func (noEvents) Reference(corev1.ObjectReference, string, string, string, ...any) {}

func (c *Config) podsDir() string { return filepath.Join(c.DataDir, "pods") }

func (c *Config) podDir(uid types.UID) string { return filepath.Join(c.podsDir(), string(uid)) }

// volumesDir contains the volumes of the local provisioner.
func (c *Config) volumesDir() string { return filepath.Join(c.DataDir, "volumes") }

// seccompDir contains Localhost profiles.
func (c *Config) seccompDir() string { return filepath.Join(c.DataDir, "seccomp") }
