// Package placement allocates exclusive resources to the containers of a node: CPUs,
// memory and devices. It combines the managers of these, aligns their allocations,
// and serves the podresources API.
//
// With the default policies and without device plugins it does nothing.
//
//   - podresources.go: serves kubelet's podresources API (v1), from which monitoring agents on the node read the
//     exclusive CPUs, memory and devices of each pod
package placement

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/amount"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/dra"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/plugins"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/guard"
)

// Pod is a pod on the node.
type Pod interface {
	// Object returns the current, shared object of the pod.
	Object() *corev1.Pod
	// Observed returns the observed state of the pod in the runtime, which must not be
	// modified; nil: not observed yet.
	Observed() *status.Observed
	// Wake triggers a sync of the pod.
	Wake()
}

// Node is notified by a Placement.
type Node interface {
	// Poke triggers an update of the node's status.
	Poke()
	Event(eventType, reason, format string, args ...any)
}

// Runtime updates the CPUs of containers.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
}

// Deps are a Placement's dependencies; all but Guard and Providers are required. The functions are called only after
// New has begun.
type Deps struct {
	Runtime Runtime
	Node    Node
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	Guard   *guard.Guard
	// Providers are called in addition to the providers of CPUs, memory and devices.
	Providers []topology.Provider
	// Pods returns all pods of the node by UID, and Pod one of them.
	Pods func() map[types.UID]Pod
	Pod  func(types.UID) (Pod, bool)
	// Known reports whether Pods is complete, which is not the case right after the start.
	Known func() bool
	// Active returns the pods that hold resources.
	Active func() []*corev1.Pod
}

// Config of a Placement. DataDir, SysRoot and Capacity are required.
type Config struct {
	DataDir string // folder of the checkpoints
	SysRoot string // root of sysfs, for the machine's topology
	// Capacity is the node's capacity, Reserve its reservations, and Evicting its hard eviction thresholds.
	Capacity corev1.ResourceList
	Reserve  reserve.Config
	Evicting corev1.ResourceList

	CPUs     cpumanager.Config    // zero: policy none
	Memory   memorymanager.Config // zero: policy None
	Topology topology.Config      // zero: policy none
	// Devices contains Dir, Listen and Dial; New sets the other fields. Without a Dir, plugins are not served.
	Devices deviceplugin.Config
	// Plugins is the folder that is watched for the sockets of plugins of all types; empty: none.
	Plugins string
	// CSI registers CSI drivers; required if Plugins is set.
	CSI plugins.Handler
	// Claims is the API for DRA drivers; required if Plugins is set.
	Claims dra.API
	// Socket is the path of the podresources socket; empty: not served.
	Socket string
}

// pluginManagers are the managers of plugins. A manager is nil if its plugins are not served.
type pluginManagers struct {
	devices *deviceplugin.Manager
	claims  *dra.Manager
}

// Placement allocates exclusive resources to containers.
type Placement struct {
	Deps
	*topology.Manager
	cfg       Config
	machine   *numa.Machine          // nil: not needed
	cpus      *cpumanager.Manager    // nil: policy none
	memory    *memorymanager.Manager // nil: policy None
	plugins   pluginManagers
	pinner    *cpumanager.Pinner // nil: no CPUs are pinned
	resources *server            // nil: not served
	// staleCheckpoint is a checkpoint of policy static although the policy is now none: containers are still pinned.
	staleCheckpoint checkpoint.File
}

// New reads the machine's topology only if a manager needs it.
func New(deps Deps, cfg Config) (*Placement, error) {
	p := &Placement{Deps: deps, cfg: cfg}
	providers := slices.Clone(deps.Providers)
	if err := p.newDevices(); err != nil {
		return nil, err
	}
	if p.plugins.devices != nil {
		providers = append(providers, p.plugins.devices)
	}
	if err := p.newClaims(); err != nil {
		return nil, err
	}
	if p.plugins.claims != nil {
		providers = append(providers, p.plugins.claims)
	}
	if err := p.readMachine(); err != nil {
		return nil, fmt.Errorf("read the machine's topology: %w", err)
	}
	if p.machine != nil {
		more, err := p.newProviders()
		if err != nil {
			return nil, err
		}
		providers = append(providers, more...)
	}
	var err error
	p.Manager, err = topology.New(
		topology.Deps{Machine: p.machine, Providers: providers, Clock: p.Clock, Metrics: p.Metrics}, cfg.Topology)
	if err != nil || cfg.Socket == "" {
		return p, err
	}
	p.resources, err = newServer(podResources{p}, p.Metrics)
	return p, err
}

func (p *Placement) readMachine() (err error) {
	cfg := &p.cfg
	p.staleCheckpoint = checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName))
	if !cfg.CPUs.Off() || !p.staleCheckpoint.Exists() {
		p.staleCheckpoint = ""
	}
	if cfg.Memory.Off() { // containers stay pinned until they restart
		if err := checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)).Remove(); err != nil {
			return err
		}
	}
	if cfg.Topology.Off() && cfg.CPUs.Off() && cfg.Memory.Off() && p.staleCheckpoint == "" {
		return nil
	}
	p.machine, err = numa.Read(cfg.SysRoot)
	return err
}

// Processors returns the number of the node's CPUs, even if this process may not run on all of them; 0: unknown.
func (p *Placement) Processors() int {
	if p.machine == nil {
		return 0
	}
	return len(p.machine.CPUs)
}

// newProviders creates the enabled providers.
func (p *Placement) newProviders() (out []topology.Provider, err error) {
	cfg := &p.cfg
	if p.staleCheckpoint != "" {
		p.pinner = p.newPinner(func(types.UID, string) cpuset.CPUSet { return p.machine.All() })
	}
	if !cfg.CPUs.Off() {
		p.cpus, err = cpumanager.New(cpumanager.Deps{
			Machine: p.machine, ReservedCPUs: cfg.Reserve.ReservedCPUs, Reserved: cfg.Reserve.Reserved(),
			File: checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName)), Changed: func() { p.pinner.Poke() },
			Log: p.Log, Metrics: p.Metrics,
		}, cfg.CPUs)
		if err != nil {
			return nil, err
		}
		p.pinner = p.newPinner(p.cpus.CPUs)
		out = append(out, p.cpus)
	}
	if !cfg.Memory.Off() {
		reserved := cfg.Reserve.Reserved()
		amount.Add(reserved, cfg.Evicting)
		p.memory, err = memorymanager.New(memorymanager.Deps{
			Machine: p.machine, Capacity: cfg.Capacity, Reserved: reserved, Log: p.Log, Metrics: p.Metrics,
			File: checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)),
		}, cfg.Memory)
		if err != nil {
			return nil, err
		}
		out = append(out, p.memory)
	}
	return out, nil
}

// Run serves plugins and the podresources API, and keeps containers on their CPUs, until ctx ends.
func (p *Placement) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx) // also if a part panics
	if claims := p.plugins.claims; claims != nil {
		if err := claims.Lost(); err != nil {
			p.Node.Event(corev1.EventTypeWarning, "ResourceClaimStateLost", "%v", err)
		}
		defer claims.Start(ctx)() // waits, after cancel
	}
	defer cancel()
	guard.Together(ctx, p.serveDevices, p.servePodResources, p.pin)
}

// Found passes the existing containers of running pods to the providers after a start.
func (p *Placement) Found(containers []*cri.Container) {
	slices.SortFunc(containers, func(a, b *cri.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	runs := map[types.UID]bool{}
	for _, c := range containers {
		runs[podOf(c)] = runs[podOf(c)] || c.State != cri.ContainerState_CONTAINER_EXITED
	}
	var made []topology.Container
	for _, c := range containers {
		if uid := podOf(c); runs[uid] {
			made = append(made, topology.Container{Pod: uid, Container: c.Metadata.Name, Annotations: c.Annotations})
		}
	}
	p.Recover(made)
}

func podOf(c *cri.Container) types.UID { return types.UID(spec.IdentityOf(c.Labels).UID) }

// Infeasible returns why the running pod cannot be resized to next, because its CPUs or memory were allocated at
// admission; empty: it can be. The messages are upstream's.
func (p *Placement) Infeasible(pod, next *corev1.Pod) string {
	if status.QOS(next) != corev1.PodQOSGuaranteed {
		return ""
	}
	const message = "Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q"
	if p.cpus != nil && spec.RequestChanged(&next.Spec, &pod.Spec, corev1.ResourceCPU) {
		return fmt.Sprintf(message, "CPU", cpumanager.Static)
	}
	if p.memory != nil && spec.RequestChanged(&next.Spec, &pod.Spec, corev1.ResourceMemory) {
		return fmt.Sprintf(message, "Memory", memorymanager.Static)
	}
	return ""
}
