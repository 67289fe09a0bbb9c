package memorymanager

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/resources/topology"
)

// state is the checkpoint, in upstream's format. Machine is only written: it is derived from Entries and the machine.
type state struct {
	Policy  string                             `json:"policyName"`
	Machine map[string]nodeState               `json:"machineState"`
	Entries map[string]map[string][]blockState `json:"entries,omitempty"`
}

type blockState struct {
	Nodes []int               `json:"numaAffinity"`
	Type  corev1.ResourceName `json:"type"`
	Size  int64               `json:"size"`
}

type nodeState struct {
	Assignments int                                `json:"numberOfAssignments"`
	Memory      map[corev1.ResourceName]tableState `json:"memoryMap"`
	Cells       []int                              `json:"cells"`
}

type tableState struct {
	Total       int64 `json:"total"`
	System      int64 `json:"systemReserved"`
	Allocatable int64 `json:"allocatable"`
	Reserved    int64 `json:"reserved"`
	Free        int64 `json:"free"`
}

// save writes the checkpoint. If that fails, allocations stay valid; after a restart
// the agent restores them from the containers' annotations (Recover).
func (m *Manager) save() {
	m.saveMu.Lock()
	defer m.saveMu.Unlock()
	m.mu.Lock()
	s := m.ledger.state()
	m.mu.Unlock()
	if err := m.File.Save(s); err != nil {
		m.Log.Error("failed to write the memory manager checkpoint: "+
			"after a restart, allocations are restored only from container annotations",
			zap.String("file", string(m.File)), zap.Error(err))
	}
}

func (l *ledger) state() state {
	s := state{Policy: Static, Machine: map[string]nodeState{}, Entries: map[string]map[string][]blockState{}}
	for id := range l.nodes {
		s.Machine[strconv.Itoa(id)] = l.nodeState(id)
	}
	for uid, containers := range l.allocated {
		entry := map[string][]blockState{}
		for name, blocks := range containers {
			entry[name] = states(blocks)
		}
		s.Entries[string(uid)] = entry
	}
	return s
}

func states(blocks []Block) []blockState {
	var out []blockState
	for _, b := range blocks {
		out = append(out, blockState{b.Nodes.IDs(), b.Type, b.Size})
	}
	return out
}

// nodeState returns the allocations of a node. A block on several nodes counts for the first nodes first.
func (l *ledger) nodeState(id int) nodeState {
	s := nodeState{Memory: map[corev1.ResourceName]tableState{}, Cells: []int{id}}
	used := map[corev1.ResourceName]int64{}
	l.blocks(func(b *Block) bool {
		if b.Nodes.Has(id) {
			s.Assignments++
			s.Cells = b.Nodes.IDs()
			used[b.Type] += b.Size
		}
		return true
	})
	for name, a := range l.nodes[id] {
		reserved := used[name]
		for _, before := range s.Cells[:slices.Index(s.Cells, id)] {
			reserved -= l.nodes[before][name].allocatable()
		}
		reserved = min(max(reserved, 0), a.allocatable())
		s.Memory[name] = tableState{a.total, a.reserved, a.allocatable(), reserved, a.allocatable() - reserved}
	}
	return s
}

// restore restores the checkpoint. A checkpoint that is damaged, or invalid on this
// machine with these flags, is set aside.
func (m *Manager) restore() error {
	var s state
	found, err := m.File.Load(&s)
	if err == nil && found {
		err = m.ledger.accept(s)
	}
	m.noCheckpoint = !found || err != nil
	if err == nil {
		return nil
	}
	clear(m.ledger.allocated)
	if m.lost, err = m.File.StartOver(err, "allocations of running containers are restored from the runtime"); err != nil {
		return err
	}
	m.Log.Error("cannot restore the memory manager checkpoint", zap.Error(m.lost))
	return nil
}

// accept validates the checkpoint and restores its allocations.
func (l *ledger) accept(s state) error {
	if s.Policy != Static {
		return fmt.Errorf("the policy of the memory manager checkpoint is %q", s.Policy)
	}
	for _, uid := range slices.Sorted(maps.Keys(s.Entries)) {
		for name, blocks := range s.Entries[uid] {
			if err := l.put(types.UID(uid), name, blocks); err != nil {
				return err
			}
		}
	}
	return l.check()
}

// put records the container's blocks.
func (l *ledger) put(uid types.UID, container string, states []blockState) error {
	all := l.all()
	blocks := make([]Block, 0, len(states))
	for _, b := range states {
		for _, id := range b.Nodes {
			if id < 0 || id > 63 || !all.Has(id) {
				return fmt.Errorf("container %s of pod %s has memory on NUMA node %d, which does not exist", container, uid, id)
			}
		}
		blocks = append(blocks, Block{topology.NewNodes(b.Nodes...), b.Type, b.Size})
	}
	if l.allocated[uid] == nil {
		l.allocated[uid] = map[string][]Block{}
	}
	l.allocated[uid][container] = blocks
	return nil
}

// annotation is the container annotation that contains its blocks, in the checkpoint's format.
const annotation = "io.monopod.container.memory"

// Recover implements topology.Provider. Blocks that are not valid with the current machine and flags are replaced by
// new ones.
func (m *Manager) Recover(made []topology.Container) {
	if !m.noCheckpoint {
		return
	}
	m.mu.Lock()
	topology.RestoreFromAnnotations(m.Log, made, annotation, func(c topology.Container, note string) error {
		if _, has := m.ledger.allocated[c.Pod][c.Container]; has {
			return nil
		}
		return m.ledger.recover(c.Pod, c.Container, note)
	})
	m.mu.Unlock()
	m.save()
}

// recover restores the blocks with which the container was created, if they are valid.
func (l *ledger) recover(uid types.UID, container, text string) error {
	var blocks []blockState
	err := json.Unmarshal([]byte(text), &blocks)
	if err == nil {
		err = l.put(uid, container, blocks)
	}
	if err == nil {
		err = l.check()
	}
	if err != nil {
		delete(l.allocated[uid], container)
	}
	return err
}

// check returns an error if a node has blocks of different sets, or is overcommitted.
func (l *ledger) check() error {
	var err error
	l.blocks(func(b *Block) bool {
		if !l.usable(b.Nodes) || b.Nodes == 0 {
			err = fmt.Errorf("the NUMA nodes %s are used in different sets", b.Nodes)
		} else if l.free(b.Nodes, b.Type, target{}) < 0 || b.Size < 0 {
			err = fmt.Errorf("the NUMA nodes %s have less %s than was allocated", b.Nodes, b.Type)
		}
		return err == nil
	})
	return err
}
