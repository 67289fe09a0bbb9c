package agent

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"monopod/agent/amount"
	"monopod/agent/checkpoint"
	"monopod/agent/cpumanager"
	"monopod/agent/memorymanager"
	"monopod/agent/numa"
	"monopod/agent/resize"
	"monopod/agent/spec"
	"monopod/agent/status"
	"monopod/agent/topology"
)

// placement gives containers what they have for themselves: processors, memory,
// devices. With the default policies it knows nothing and does nothing.
type placement struct {
	*topology.Manager
	a      *Agent
	cpus   *cpumanager.Manager    // nil: policy none
	memory *memorymanager.Manager // nil: policy None
	pinner *cpumanager.Pinner     // nil: all containers are on all processors
	// leftover is the file of a policy that is off now, whose containers are still
	// where it put them.
	leftover checkpoint.File
}

// newPlacement reads the machine only where somebody wants to know of it.
func newPlacement(a *Agent) (*placement, error) {
	p := &placement{a: a}
	providers := a.Providers
	machine, err := p.machine()
	if err != nil {
		return nil, fmt.Errorf("read the machine's topology: %w", err)
	}
	if machine != nil {
		a.count(machine)
		if providers, err = p.newProviders(machine); err != nil {
			return nil, err
		}
	}
	p.Manager, err = topology.New(topology.Deps{Machine: machine, Providers: providers, Clock: a.Clock, Metrics: a.Metrics}, a.cfg.Topology)
	return p, err
}

// machine is nil where nobody wants to know of it.
func (p *placement) machine() (*numa.Machine, error) {
	cfg := &p.a.cfg
	p.leftover = checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName))
	if !cfg.CPUs.Off() || !p.leftover.Exists() {
		p.leftover = ""
	}
	if cfg.Memory.Off() { // containers keep what they have until they start again
		if err := checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)).Remove(); err != nil {
			return nil, err
		}
	}
	if cfg.Topology.Off() && cfg.CPUs.Off() && cfg.Memory.Off() && p.leftover == "" {
		return nil, nil
	}
	return numa.Read(cfg.SysRoot)
}

// count takes the processors that may be given out as the node's, even if this
// process may not run on all of them.
func (a *Agent) count(machine *numa.Machine) {
	a.capacity[corev1.ResourceCPU] = *resource.NewQuantity(int64(len(machine.CPUs)), resource.DecimalSI)
	a.allocatable = a.cfg.Reserve.Allocatable(a.capacity, a.cfg.Eviction.Reservation(a.capacity))
}

// newProviders makes those that are switched on.
func (p *placement) newProviders(machine *numa.Machine) ([]topology.Provider, error) {
	out := append([]topology.Provider{}, p.a.Providers...)
	if p.leftover != "" {
		p.pinner = p.newPinner(func(types.UID, string) cpuset.CPUSet { return machine.All() })
	}
	if !p.a.cfg.CPUs.Off() {
		if err := p.newCPUs(machine); err != nil {
			return nil, err
		}
		out = append(out, p.cpus)
	}
	if !p.a.cfg.Memory.Off() {
		if err := p.newMemory(machine); err != nil {
			return nil, err
		}
		out = append(out, p.memory)
	}
	return out, nil
}

func (p *placement) newPinner(cpus func(types.UID, string) cpuset.CPUSet) *cpumanager.Pinner {
	return cpumanager.NewPinner(cpumanager.PinnerDeps{
		Running: p.running, CPUs: cpus, Move: p.move, Clock: p.a.Clock, Log: p.a.log, Period: p.a.cfg.CPUs.Period,
	})
}

func (p *placement) newCPUs(machine *numa.Machine) error {
	cfg := &p.a.cfg
	var err error
	p.cpus, err = cpumanager.New(cpumanager.Deps{
		Machine: machine, ReservedCPUs: cfg.Reserve.ReservedCPUs, Reserved: cfg.Reserve.Reserved(), Log: p.a.log, Metrics: p.a.Metrics,
		File: checkpoint.File(filepath.Join(cfg.DataDir, cpumanager.FileName)), Changed: func() { p.pinner.Poke() },
	}, cfg.CPUs)
	if err == nil {
		p.pinner = p.newPinner(p.cpus.CPUs)
	}
	return err
}

func (p *placement) newMemory(machine *numa.Machine) error {
	cfg := &p.a.cfg
	reserved := cfg.Reserve.Reserved()
	amount.Add(reserved, cfg.Eviction.Reservation(p.a.capacity))
	var err error
	p.memory, err = memorymanager.New(memorymanager.Deps{
		Machine: machine, Capacity: p.a.capacity, Reserved: reserved, Log: p.a.log, Metrics: p.a.Metrics,
		File: checkpoint.File(filepath.Join(cfg.DataDir, memorymanager.FileName)),
	}, cfg.Memory)
	return err
}

// run keeps containers on their processors until ctx ends.
func (p *placement) run(ctx context.Context) {
	if p.cpus != nil && p.cpus.Lost() != nil {
		p.a.node.Event(corev1.EventTypeWarning, "CPUManagerStateLost", "%v", p.cpus.Lost())
	}
	if p.memory != nil && p.memory.Lost() != nil {
		p.a.node.Event(corev1.EventTypeWarning, "MemoryManagerStateLost", "%v", p.memory.Lost())
	}
	switch {
	case p.pinner == nil:
	case p.leftover != "":
		p.release(ctx)
	default:
		p.pinner.Run(ctx)
	}
}

// leftoverPause is between attempts to let containers run on all processors again.
const leftoverPause = time.Second

// release lets containers that policy static had put on some processors run on all
// again, once it is known which there are.
func (p *placement) release(ctx context.Context) {
	p.a.log.Warn("the CPU manager's policy is none now: all containers run on all processors again", zap.String("file", string(p.leftover)))
	for !p.allSeen() || !p.pinner.Pass(ctx) {
		if !p.a.sleep(ctx, leftoverPause) {
			return
		}
	}
	if err := p.leftover.Remove(); err != nil {
		p.a.log.Warn("the CPU manager's file is not removed", zap.Error(err))
	}
}

// allSeen says whether every worker knows its containers.
func (p *placement) allSeen() bool {
	for _, w := range p.a.all() {
		if w.snapshot.Load() == nil {
			return false
		}
	}
	return p.a.knowsPods()
}

// running are the containers that run.
func (p *placement) running() []cpumanager.Container {
	var out []cpumanager.Container
	for uid, w := range p.a.all() {
		seen := w.snapshot.Load()
		if seen == nil {
			continue
		}
		for i := range seen.Containers {
			if c := &seen.Containers[i]; c.State == status.Running {
				out = append(out, cpumanager.Container{Pod: uid, Name: c.Name, ID: c.ID})
			}
		}
	}
	return out
}

func (p *placement) move(ctx context.Context, id, cpus string) error {
	err := p.a.Runtime.UpdateContainerResources(ctx, id, &cri.LinuxContainerResources{CpusetCpus: cpus})
	if isNotFound(err) {
		return nil
	}
	return err
}

// made notes with what a container was made.
func (p *placement) made(id string, config *cri.ContainerConfig) {
	if p.pinner != nil {
		p.pinner.Made(id, config.GetLinux().GetResources().GetCpusetCpus())
	}
}

// started looks after a container that was made when others had other processors.
func (p *placement) started(ctx context.Context, uid types.UID, c *status.Container) {
	if p.pinner != nil && p.leftover == "" {
		p.pinner.Started(ctx, cpumanager.Container{Pod: uid, Name: c.Name, ID: c.ID})
	}
}

// recover tells the providers what the containers were made with that the runtime
// has after a start.
func (p *placement) recover(containers []*cri.Container) {
	slices.SortFunc(containers, func(a, b *cri.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	for _, c := range containers {
		p.Recover(types.UID(spec.IdentityOf(c.Labels).UID), c.Metadata.Name, c.Annotations)
	}
}

// settle takes back what pods have that are gone since an agent before this one
// let them in. listed are those of the API.
func (a *Agent) settle(listed []*corev1.Pod) {
	runs := map[types.UID]bool{}
	for _, pod := range listed {
		runs[pod.UID] = !status.Finished(pod.Status.Phase)
	}
	a.placement.Retain(func(uid types.UID) bool { return runs[uid] || a.worker(uid) != nil })
}

// infeasible says why the pod can never have what next asks for while it runs: its
// processors, or its memory, were given out when it was let in. The messages are
// upstream's.
func (p *placement) infeasible(pod, next *corev1.Pod) string {
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
