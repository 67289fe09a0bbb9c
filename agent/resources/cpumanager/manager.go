// Package cpumanager allocates exclusive CPUs to containers of Guaranteed pods with
// integer CPU requests, as kubelet's CPU manager with policy static does. All other
// containers share the rest.
//
//   - Config: kubelet's flags.
//   - Manager: the allocated CPUs, stored in a checkpoint.
//   - packer: decides which CPUs to allocate; pure.
//
// With policy none there is no Manager.
package cpumanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// FileName is the name of the checkpoint below the data folder, as upstream.
const FileName = "cpu_manager_state"

// Deps are a Manager's dependencies; all but ReservedCPUs are required.
type Deps struct {
	Machine *numa.Machine
	// ReservedCPUs are never allocated. Empty: as many CPUs as Reserved contains are chosen.
	ReservedCPUs cpuset.CPUSet
	Reserved     corev1.ResourceList
	File         checkpoint.File
	Log          *zap.Logger
	Metrics      prometheus.Registerer
	// Changed is called when the shared pool has changed. It must not block.
	Changed func()
}

// Manager allocates CPUs for policy static.
type Manager struct {
	Deps
	packer       packer
	all          cpuset.CPUSet
	reserved     cpuset.CPUSet
	lost         error // why the checkpoint was set aside; nil: it was restored
	noCheckpoint bool  // Recover writes it
	requests     prometheus.Counter
	failures     prometheus.Counter

	saveMu sync.Mutex // guards the checkpoint: one write at a time

	mu        sync.Mutex // guards the fields below
	allocated map[types.UID]map[string]cpuset.CPUSet
}

var _ topology.Provider = (*Manager)(nil)

// New restores the checkpoint. It sets an invalid checkpoint aside, which Lost reports; then Recover restores the
// allocations from the annotations of containers as far as possible.
func New(deps Deps, cfg Config) (*Manager, error) {
	choices, err := cfg.policyOptions()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		Deps: deps, packer: packer{deps.Machine, choices}, all: deps.Machine.All(),
		allocated: map[types.UID]map[string]cpuset.CPUSet{},
	}
	if err := m.reserve(); err != nil {
		return nil, err
	}
	if err := m.restore(); err != nil {
		return nil, err
	}
	return m, m.measure()
}

// reserve determines the reserved CPUs.
func (m *Manager) reserve() error {
	want := int((m.Reserved.Cpu().MilliValue() + 999) / 1000)
	m.reserved = m.ReservedCPUs
	switch {
	case m.reserved.IsEmpty() && want == 0:
		return errors.New(
			"--cpu-manager-policy: static requires that cpu of --kube-reserved and --system-reserved is greater than zero, " +
				"or --reserved-cpus")
	case !m.reserved.IsSubsetOf(m.all):
		return fmt.Errorf("--reserved-cpus: %s: this machine has the CPUs %s", m.reserved, m.all)
	case !m.reserved.IsEmpty():
		return nil
	}
	var err error
	first := packer{machine: m.Machine}
	if m.reserved, err = first.choose(m.all, want); err != nil {
		return fmt.Errorf("--kube-reserved and --system-reserved: %w", err)
	}
	return nil
}

func (m *Manager) measure() error {
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_cpu_manager_pinning_requests_total", Help: "Containers that requested exclusive CPUs."})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_cpu_manager_pinning_errors_total", Help: "Containers that requested exclusive CPUs and got none."})
	shared := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_cpu_manager_shared_pool_size_millicores", Help: "Size of the shared CPU pool in millicores.",
	}, func() float64 { return float64(1000 * m.Shared().Size()) })
	exclusive := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_cpu_manager_exclusive_cpu_allocation_count", Help: "Number of CPUs that are allocated exclusively.",
	}, func() float64 { return float64(m.lockedAllocatedCPUs().Size()) })
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.failures, shared, exclusive} {
		errs = append(errs, m.Metrics.Register(c))
	}
	return errors.Join(errs...)
}

// Lost returns why the checkpoint was set aside; nil: it was restored.
func (m *Manager) Lost() error { return m.lost }

// ExclusiveCPUs returns the number of exclusive CPUs that the container requests; 0: it uses the shared pool. Pods with
// pod-level resources use the shared pool, as upstream.
func ExclusiveCPUs(pod *corev1.Pod, c *corev1.Container) int {
	cpu := c.Resources.Requests.Cpu()
	if cpu.IsZero() || cpu.MilliValue()%1000 != 0 || pod.Spec.Resources != nil ||
		status.QOS(pod) != corev1.PodQOSGuaranteed {
		return 0
	}
	return int(cpu.Value())
}

// Allocate implements topology.Provider.
func (m *Manager) Allocate(_ context.Context, pod *corev1.Pod, c *corev1.Container, hint topology.Hint) error {
	need := ExclusiveCPUs(pod, c)
	if need == 0 {
		return nil
	}
	m.requests.Inc()
	if !m.Exclusive(pod.UID, c.Name).IsEmpty() {
		return nil
	}
	if err := m.allocate(pod, c, need, hint.Nodes); err != nil {
		m.failures.Inc()
		return err
	}
	m.save()
	m.Changed()
	return nil
}

// allocate allocates exclusive CPUs to c, from the nodes if possible.
func (m *Manager) allocate(pod *corev1.Pod, c *corev1.Container, need int, nodes topology.Nodes) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.free().Union(m.reusable(pod, c))
	if err := m.aligned(free, need); err != nil {
		return err
	}
	cpus, err := m.choose(free, need, nodes)
	if err != nil {
		return err
	}
	m.record(pod.UID, c.Name, cpus)
	m.Log.Info("exclusive CPUs allocated", zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name),
		zap.String("container", c.Name), zap.Stringer("cpus", cpus))
	return nil
}

// record records the container's exclusive CPUs. The caller holds mu.
func (m *Manager) record(uid types.UID, container string, cpus cpuset.CPUSet) {
	if m.allocated[uid] == nil {
		m.allocated[uid] = map[string]cpuset.CPUSet{}
	}
	m.allocated[uid][container] = cpus
}

// choose chooses CPUs of the nodes first, then of other nodes.
func (m *Manager) choose(free cpuset.CPUSet, need int, nodes topology.Nodes) (cpuset.CPUSet, error) {
	var first cpuset.CPUSet
	if nodes != 0 {
		around := ids(m.packer.eligible(free.Intersection(m.around(nodes))))
		var err error
		if first, err = m.packer.choose(around, min(need, around.Size())); err != nil {
			return first, err
		}
	}
	rest, err := m.packer.choose(free.Difference(first), need-first.Size())
	if err != nil {
		return rest, shortage(need, free.Size())
	}
	return first.Union(rest), nil
}

// around returns the CPUs of the nodes, or of their sockets.
func (m *Manager) around(nodes topology.Nodes) cpuset.CPUSet {
	sockets := m.sockets(nodes)
	return m.Machine.Where(func(c numa.CPU) bool {
		return nodes.Has(c.Node) || m.packer.BySocket && sockets[c.Socket]
	})
}

func (m *Manager) sockets(nodes topology.Nodes) map[int]bool {
	out := map[int]bool{}
	for _, c := range m.Machine.CPUs {
		if nodes.Has(c.Node) {
			out[c.Socket] = true
		}
	}
	return out
}

// aligned returns an error if the allocation cannot be whole cores, with full-pcpus-only.
func (m *Manager) aligned(free cpuset.CPUSet, need int) error {
	threads := m.Machine.ThreadsPerCore()
	if !m.packer.FullCores {
		return nil
	}
	if need%threads != 0 {
		return alignment(fmt.Sprintf("SMT Alignment Error: requested %d cpus not multiple cpus per core = %d", need, threads))
	}
	if whole := len(m.packer.eligible(free)); need > whole {
		return alignment(fmt.Sprintf("SMT Alignment Error: not enough free physical CPUs: "+
			"available physical CPUs = %d, requested CPUs = %d, CPUs per core = %d", whole, need, threads))
	}
	return nil
}

// alignment is the error for a pod that would share a core. Reason and messages are upstream's.
type alignment string

var _ topology.Refusal = alignment("")

// Error implements error.
func (e alignment) Error() string { return string(e) }

// Reason implements topology.Refusal.
func (e alignment) Reason() string { return "SMTAlignmentError" }

// free returns the CPUs that can be allocated. The caller holds mu.
func (m *Manager) free() cpuset.CPUSet {
	return m.all.Difference(m.reserved).Difference(m.allocatedCPUs())
}

func (m *Manager) allocatedCPUs() cpuset.CPUSet {
	var sets []cpuset.CPUSet
	for _, containers := range m.allocated {
		sets = slices.AppendSeq(sets, maps.Values(containers))
	}
	return cpuset.New().Union(sets...)
}

// reusable returns the CPUs of finished init containers that c can reuse. CPUs of sidecars cannot be reused. The caller
// holds mu.
func (m *Manager) reusable(pod *corev1.Pod, c *corev1.Container) cpuset.CPUSet {
	has := m.allocated[pod.UID]
	var left, kept cpuset.CPUSet
	for i := range pod.Spec.InitContainers {
		earlier := &pod.Spec.InitContainers[i]
		if earlier.Name == c.Name {
			return left.Difference(kept)
		}
		if status.Sidecar(earlier) {
			kept = kept.Union(has[earlier.Name])
		} else {
			left = left.Union(has[earlier.Name])
		}
	}
	for i := range pod.Spec.Containers {
		kept = kept.Union(has[pod.Spec.Containers[i].Name])
	}
	return left.Difference(kept)
}

func (m *Manager) lockedAllocatedCPUs() cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocatedCPUs()
}

// Shared returns the CPUs of the shared pool. If strict reservation leaves none, these are the reserved CPUs.
func (m *Manager) Shared() cpuset.CPUSet {
	shared := m.all.Difference(m.lockedAllocatedCPUs())
	if m.packer.Strict {
		shared = shared.Difference(m.reserved)
	}
	if shared.IsEmpty() {
		return m.reserved
	}
	return shared
}

// Exclusive returns the container's exclusive CPUs; empty: none.
func (m *Manager) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocated[uid][container]
}

// CPUs returns the CPUs on which the container must run.
func (m *Manager) CPUs(uid types.UID, container string) cpuset.CPUSet {
	if exclusive := m.Exclusive(uid, container); !exclusive.IsEmpty() {
		return exclusive
	}
	return m.Shared()
}

// Allocatable returns the CPUs that are allocated or can be.
func (m *Manager) Allocatable() cpuset.CPUSet { return m.all.Difference(m.reserved) }

// Allotment implements topology.Provider.
func (m *Manager) Allotment(_ context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error) {
	exclusive := m.Exclusive(pod.UID, c.Name)
	if exclusive.IsEmpty() {
		return spec.Allotment{CPUs: m.Shared().String()}, nil
	}
	out := spec.Allotment{CPUs: exclusive.String(), Exclusive: true}
	out.Annotate(annotation, exclusive.String())
	return out, nil
}

// Release implements topology.Provider.
func (m *Manager) Release(uid types.UID) {
	m.Retain(func(other types.UID) bool { return other != uid })
}

// Retain implements topology.Provider.
func (m *Manager) Retain(alive func(types.UID) bool) {
	m.mu.Lock()
	before := len(m.allocated)
	maps.DeleteFunc(m.allocated, func(uid types.UID, _ map[string]cpuset.CPUSet) bool { return !alive(uid) })
	same := len(m.allocated) == before
	m.mu.Unlock()
	if same {
		return
	}
	m.save()
	m.Changed()
}
