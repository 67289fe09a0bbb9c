// Package memorymanager keeps the memory and huge pages of Guaranteed pods'
// containers on as few NUMA nodes as possible, as kubelet's memory manager with
// policy Static does.
//
//   - Config: kubelet's flags.
//   - Block: an amount of memory or huge pages on a set of nodes.
//   - ledger: the allocated and free blocks; pure.
//   - Manager: hints, allocation, and the checkpoint.
//
// All blocks of a node have the same set of nodes: a node that shares a block with other nodes cannot be allocated
// alone. With policy None there is no Manager.
package memorymanager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// FileName is the name of the checkpoint below the data folder, as upstream.
const FileName = "memory_manager_state"

// Deps are a Manager's dependencies; all are required.
type Deps struct {
	Machine  *numa.Machine
	Capacity corev1.ResourceList // of the node, for machines whose only NUMA node does not report its memory
	Reserved corev1.ResourceList // of the node, including eviction thresholds
	File     checkpoint.File
	Log      *zap.Logger
	Metrics  prometheus.Registerer
}

// Manager allocates memory for policy Static.
type Manager struct {
	Deps
	cfg          Config
	lost         error // why the checkpoint was set aside; nil: it was not
	noCheckpoint bool  // there is no checkpoint: Recover writes it
	requests     prometheus.Counter
	failures     prometheus.Counter

	saveMu sync.Mutex // guards the checkpoint: one write at a time

	mu     sync.Mutex // guards the fields below
	ledger ledger
}

var _ topology.Provider = (*Manager)(nil)

// New restores the checkpoint. It sets an invalid checkpoint aside, which Lost reports; then Recover restores the
// allocations from the annotations of containers as far as possible.
func New(deps Deps, cfg Config) (*Manager, error) {
	if err := cfg.checkMachine(deps.Machine, deps.Reserved); err != nil {
		return nil, err
	}
	m := &Manager{Deps: deps, cfg: cfg}
	m.ledger = ledger{nodes: m.nodes(), allocated: map[types.UID]map[string][]Block{}}
	m.requests = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_memory_manager_pinning_requests_total",
		Help: "Containers that requested memory pinned to NUMA nodes."})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kubelet_memory_manager_pinning_errors_total",
		Help: "Containers that requested memory pinned to NUMA nodes and got none."})
	if err := m.restore(); err != nil {
		return nil, err
	}
	return m, errors.Join(deps.Metrics.Register(m.requests), deps.Metrics.Register(m.failures))
}

// nodes returns the amounts of each node.
func (m *Manager) nodes() map[int]map[corev1.ResourceName]amount {
	out := map[int]map[corev1.ResourceName]amount{}
	for _, n := range m.Machine.Nodes {
		memory := n.Memory
		if memory == 0 {
			memory = m.Capacity.Memory().Value()
		}
		reserved := m.cfg.Reserved[n.ID]
		out[n.ID] = map[corev1.ResourceName]amount{}
		for size, count := range n.HugePages {
			name := host.HugePage(size)
			out[n.ID][name] = amount{total: size * count, reserved: value(reserved, name)}
			memory -= size * count
		}
		out[n.ID][corev1.ResourceMemory] = amount{total: max(memory, 0), reserved: value(reserved, corev1.ResourceMemory)}
	}
	return out
}

func value(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}

// Lost returns why the checkpoint was set aside; nil: it was restored.
func (m *Manager) Lost() error { return m.lost }

// pinnedRequests returns the container's requests of memory and huge pages to pin; nil: there are none.
func pinnedRequests(pod *corev1.Pod, c *corev1.Container) map[corev1.ResourceName]int64 {
	if pod.Spec.Resources != nil || status.QOS(pod) != corev1.PodQOSGuaranteed {
		return nil
	}
	out := map[corev1.ResourceName]int64{}
	for name, q := range c.Resources.Requests {
		if pinned(name) && !q.IsZero() {
			out[name] = q.Value()
		}
	}
	return out
}

// podPinnedRequests returns what the pod's containers need at the same time: init containers run before the others,
// sidecars together with all later containers.
func podPinnedRequests(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	sidecars, most := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		for name, n := range pinnedRequests(pod, c) {
			most[name] = max(most[name], sidecars[name]+n)
			if status.Sidecar(c) {
				sidecars[name] += n
			}
		}
	}
	for i := range pod.Spec.Containers {
		for name, n := range pinnedRequests(pod, &pod.Spec.Containers[i]) {
			sidecars[name] += n
		}
	}
	for name, n := range sidecars {
		most[name] = max(most[name], n)
	}
	return most
}

// Hints implements topology.Provider.
func (m *Manager) Hints(pod *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.ledger.allocated[pod.UID][c.Name]; len(has) > 0 {
		return allocatedHints(has, pinnedRequests(pod, c))
	}
	return m.ledger.hints(pinnedRequests(pod, c), target{pod: pod, c: c})
}

// PodHints implements topology.Provider.
func (m *Manager) PodHints(pod *corev1.Pod) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	var has []Block
	for _, blocks := range m.ledger.allocated[pod.UID] {
		has = append(has, blocks...)
	}
	if len(has) > 0 {
		return allocatedHints(has, podPinnedRequests(pod))
	}
	return m.ledger.hints(podPinnedRequests(pod), target{})
}

// allocatedHints returns the hints for blocks that were already allocated.
func allocatedHints(has []Block, want map[corev1.ResourceName]int64) map[string][]topology.Hint {
	out := map[string][]topology.Hint{}
	for name := range want {
		var nodes topology.Nodes
		for _, b := range has {
			if b.Type == name {
				nodes |= b.Nodes
			}
		}
		out[string(name)] = []topology.Hint{}
		if nodes != 0 {
			out[string(name)] = []topology.Hint{{Nodes: nodes, Preferred: true}}
		}
	}
	return out
}

// Allocate implements topology.Provider.
func (m *Manager) Allocate(_ context.Context, pod *corev1.Pod, c *corev1.Container, hint topology.Hint) error {
	want := pinnedRequests(pod, c)
	if len(want) == 0 {
		return nil
	}
	m.requests.Inc()
	m.mu.Lock()
	changed, err := m.ledger.allocate(pod, c, want, hint)
	m.mu.Unlock()
	if err != nil {
		m.failures.Inc()
		return fmt.Errorf("[memorymanager] %w", err)
	}
	if changed {
		m.save()
	}
	return nil
}

// Allotment implements topology.Provider.
func (m *Manager) Allotment(_ context.Context, pod *corev1.Pod, c *corev1.Container) (spec.Allotment, error) {
	blocks := m.Blocks(pod.UID, c.Name)
	if len(blocks) == 0 {
		return spec.Allotment{}, nil
	}
	var nodes topology.Nodes
	for _, b := range blocks {
		nodes |= b.Nodes
	}
	note, err := json.Marshal(states(blocks))
	out := spec.Allotment{Mems: nodes.String()}
	out.Annotate(annotation, string(note))
	return out, err
}

// Blocks returns the container's blocks.
func (m *Manager) Blocks(uid types.UID, container string) []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ledger.allocated[uid][container])
}

// Allocatable returns the amounts of each node that are allocated or can be.
func (m *Manager) Allocatable() []Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.allocatable()
}

// Release implements topology.Provider.
func (m *Manager) Release(uid types.UID) {
	m.Retain(func(other types.UID) bool { return other != uid })
}

// Retain implements topology.Provider.
func (m *Manager) Retain(alive func(types.UID) bool) {
	m.mu.Lock()
	before := len(m.ledger.allocated)
	for uid := range m.ledger.allocated {
		if !alive(uid) {
			delete(m.ledger.allocated, uid)
		}
	}
	same := len(m.ledger.allocated) == before
	m.mu.Unlock()
	if !same {
		m.save()
	}
}
