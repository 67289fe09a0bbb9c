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

	"monopod/agent/admission/security"
	"monopod/agent/images/garbage"
	"monopod/agent/images/image"
	"monopod/agent/logs"
	"monopod/agent/pressure/eviction"
	"monopod/agent/pressure/oom"
	"monopod/agent/resources/cgroup"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/agent/runtime"
	"monopod/agent/storage/mount"
	"monopod/agent/storage/volume"
	"monopod/apiserver/client"
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

// configured is false where static pods are asked for and cannot be completed.
func (d Deps) configured(cfg Config) error {
	if cfg.ManifestDir != "" && d.Complete == nil {
		return fmt.Errorf("agent: ManifestDir needs Complete")
	}
	return nil
}

func (c *Config) podsDir() string { return filepath.Join(c.DataDir, "pods") }

func (c *Config) podDir(uid types.UID) string { return filepath.Join(c.podsDir(), string(uid)) }

// volumesDir is where volumes of the node's own provisioner lie.
func (c *Config) volumesDir() string { return filepath.Join(c.DataDir, "volumes") }

// seccompDir is where Localhost profiles lie.
func (c *Config) seccompDir() string { return filepath.Join(c.DataDir, "seccomp") }
