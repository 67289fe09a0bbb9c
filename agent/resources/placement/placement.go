// Package placement gives the containers of a node what they have for themselves:
// processors, memory, devices of plugins. It joins those who give, asks all of them
// where a container is to lie, and tells programs on the node who has what.
//
// With the default policies, and without device plugins, it knows nothing and does
// nothing.
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

	"monopod/agent/pod/resize"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/resources/amount"
	"monopod/agent/resources/checkpoint"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/deviceplugin"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/podresources"
	"monopod/agent/resources/reserve"
	"monopod/agent/resources/topology"
	"monopod/apiserver/process/guard"
)

// Pod is one that the node runs.
type Pod interface {
	// Object is the pod as it is now; it is shared.
	Object() *corev1.Pod
	// Seen is what the runtime has of it, to be read only; nil: nobody has looked yet.
	Seen() *status.Observed
	// Wake has the pod looked at.
	Wake()
}

// Node is whom a Placement tells.
type Node interface {
	// Poke has the node's status looked at.
	Poke()
	Event(eventType, reason, format string, args ...any)
}

// Runtime moves containers to other processors.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
}

// Deps are what a Placement works with; all but Providers are required. The functions
// may be called as soon as New is.
type Deps struct {
	Runtime Runtime
	Node    Node
	Clock   clock.WithTicker
	Log     *zap.Logger
	Metrics prometheus.Registerer
	// Providers are asked beside those for processors, memory and devices.
	Providers []topology.Provider
	// Pods are all pods of the node by UID, and Pod is one of them, if it is there.
	Pods func() map[types.UID]Pod
	Pod  func(types.UID) (Pod, bool)
	// Known reports whether none is missing any more, as some are after the start.
	Known func() bool
	// Active are the pods that hold resources.
	Active func() []*corev1.Pod
}

// Config says what is given. DataDir, SysRoot and Capacity are required.
type Config struct {
	DataDir string // where it is noted who has what
	SysRoot string // where the machine's topology is read
	// Capacity is what the node has, Reserve what it keeps for itself of that, and
	// Evicting what must stay free lest pods end.
	Capacity corev1.ResourceList
	Reserve  reserve.Config
	Evicting corev1.ResourceList

	CPUs     cpumanager.Config    // the zero value: nobody has any for itself
	Memory   memorymanager.Config // likewise
	Topology topology.Config      // the zero value: nobody looks
	// Devices says where plugins are served; without a Dir they are not. New fills in
	// all but the folders and how sockets are reached.
	Devices deviceplugin.Config
	// Socket is where programs ask who has what; empty: nowhere.
	Socket string
}

// Placement gives containers what they have for themselves.
type Placement struct {
	Deps
	*topology.Manager
	cfg       Config
	machine   *numa.Machine          // nil: nobody wants to know of it
	cpus      *cpumanager.Manager    // nil: policy none
	memory    *memorymanager.Manager // nil: policy None
	devices   *deviceplugin.Manager  // nil: no plugins
	pinner    *cpumanager.Pinner     // nil: all containers are on all processors
	resources *podresources.Server   // nil: nobody may ask
	// leftover is the file of a policy that is off now, whose containers are still
	// where it put them.
	leftover checkpoint.File
}

// New reads the machine only where somebody wants to know of it.
func New(deps Deps, cfg Config) (*Placement, error) {
	p := &Placement{Deps: deps, cfg: cfg}
	providers := slices.Clone(deps.Providers)
	if err := p.newDevices(); err != nil {
		return nil, err
	}
	if p.devices != nil {
		providers = append(providers, p.devices)
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
	p.Manager, err = topology.New(topology.Deps{Machine: p.machine, Providers: providers, Clock: p.Clock, Metrics: p.Metrics}, cfg.Topology)
	if err != nil || cfg.Socket == "" {
		return p, err
	}
	p.resources, err = podresources.New(holdings{p}, p.Metrics)
	return p, err
}

func (p *Placement) readMachine() (err error) {
	cfg := &p.cfg
	p.leftover = checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName))
	if !cfg.CPUs.Off() || !p.leftover.Exists() {
		p.leftover = ""
	}
	if cfg.Memory.Off() { // containers keep what they have until they start again
		if err := checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)).Remove(); err != nil {
			return err
		}
	}
	if cfg.Topology.Off() && cfg.CPUs.Off() && cfg.Memory.Off() && p.leftover == "" {
		return nil
	}
	p.machine, err = numa.Read(cfg.SysRoot)
	return err
}

// Processors are those of the node that may be given out, even if this process may not
// run on all of them; 0: nobody has counted them.
func (p *Placement) Processors() int {
	if p.machine == nil {
		return 0
	}
	return len(p.machine.CPUs)
}

// newProviders makes those that are switched on.
func (p *Placement) newProviders() (out []topology.Provider, err error) {
	if p.leftover != "" {
		p.pinner = p.newPinner(func(types.UID, string) cpuset.CPUSet { return p.machine.All() })
	}
	if !p.cfg.CPUs.Off() {
		if err = p.newCPUs(); err != nil {
			return nil, err
		}
		out = append(out, p.cpus)
	}
	if !p.cfg.Memory.Off() {
		if err = p.newMemory(); err != nil {
			return nil, err
		}
		out = append(out, p.memory)
	}
	return out, nil
}

func (p *Placement) newCPUs() (err error) {
	cfg := &p.cfg
	p.cpus, err = cpumanager.New(cpumanager.Deps{
		Machine: p.machine, ReservedCPUs: cfg.Reserve.ReservedCPUs, Reserved: cfg.Reserve.Reserved(), Log: p.Log, Metrics: p.Metrics,
		File: checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName)), Changed: func() { p.pinner.Poke() },
	}, cfg.CPUs)
	if err == nil {
		p.pinner = p.newPinner(p.cpus.CPUs)
	}
	return err
}

func (p *Placement) newMemory() (err error) {
	cfg := &p.cfg
	reserved := cfg.Reserve.Reserved()
	amount.Add(reserved, cfg.Evicting)
	p.memory, err = memorymanager.New(memorymanager.Deps{
		Machine: p.machine, Capacity: cfg.Capacity, Reserved: reserved, Log: p.Log, Metrics: p.Metrics,
		File: checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)),
	}, cfg.Memory)
	return err
}

// Run serves plugins and those who ask, and keeps containers on their processors,
// until ctx ends.
func (p *Placement) Run(ctx context.Context) {
	guard.Together(ctx, p.serveDevices, p.serveHoldings, p.pin)
}

// Found tells the providers what the containers were made with that the runtime has
// after a start, of pods that run.
func (p *Placement) Found(containers []*cri.Container) {
	slices.SortFunc(containers, func(a, b *cri.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	runs := map[types.UID]bool{}
	for _, c := range containers {
		runs[podOf(c)] = runs[podOf(c)] || c.State != cri.ContainerState_CONTAINER_EXITED
	}
	var made []topology.Made
	for _, c := range containers {
		if uid := podOf(c); runs[uid] {
			made = append(made, topology.Made{Pod: uid, Container: c.Metadata.Name, Annotations: c.Annotations})
		}
	}
	p.Recover(made)
}

func podOf(c *cri.Container) types.UID { return types.UID(spec.IdentityOf(c.Labels).UID) }

// Infeasible says why the pod can never have what next asks for while it runs: its
// processors, or its memory, were given out when it was let in. The messages are
// upstream's.
func (p *Placement) Infeasible(pod, next *corev1.Pod) string {
	if status.QOS(next) != corev1.PodQOSGuaranteed {
		return ""
	}
	const message = "Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q"
	if p.cpus != nil && resize.Requested(&next.Spec, &pod.Spec, corev1.ResourceCPU) {
		return fmt.Sprintf(message, "CPU", cpumanager.Static)
	}
	if p.memory != nil && resize.Requested(&next.Spec, &pod.Spec, corev1.ResourceMemory) {
		return fmt.Sprintf(message, "Memory", memorymanager.Static)
	}
	return ""
}
