package memorymanager

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/status"
	"monopod/agent/resources/topology"
)

// Block is an amount of memory or huge pages on a set of NUMA nodes.
type Block struct {
	Nodes topology.Nodes
	Type  corev1.ResourceName
	Size  int64 // bytes
}

// amount is the total amount of a resource on a node, and the reserved part of it.
type amount struct{ total, reserved int64 }

func (a amount) allocatable() int64 { return max(0, a.total-a.reserved) }

// ledger contains the allocations.
type ledger struct {
	nodes     map[int]map[corev1.ResourceName]amount
	allocated map[types.UID]map[string][]Block
}

// target is the container for which memory is allocated: blocks that it can reuse from init containers count as free.
type target struct {
	pod *corev1.Pod
	c   *corev1.Container
}

// blocks calls f with every block until it returns false.
func (l *ledger) blocks(f func(*Block) bool) {
	for _, containers := range l.allocated {
		for _, list := range containers {
			for i := range list {
				if !f(&list[i]) {
					return
				}
			}
		}
	}
}

// usable reports whether no node of the set has blocks of another set.
func (l *ledger) usable(set topology.Nodes) bool {
	ok := true
	l.blocks(func(b *Block) bool {
		ok = b.Nodes == set || b.Nodes&set == 0
		return ok
	})
	return ok
}

// total returns the allocatable amount of a set of nodes, free or not.
func (l *ledger) total(set topology.Nodes, name corev1.ResourceName) int64 {
	var sum int64
	for _, id := range set.IDs() {
		sum += l.nodes[id][name].allocatable()
	}
	return sum
}

// free returns the free amount on a usable set.
func (l *ledger) free(set topology.Nodes, name corev1.ResourceName, r target) int64 {
	left := l.total(set, name)
	l.blocks(func(b *Block) bool {
		if b.Nodes == set && b.Type == name {
			left -= b.Size
		}
		return true
	})
	for _, b := range l.reusable(r) {
		if b.Nodes == set && b.Type == name {
			left += b.Size
		}
	}
	return left
}

// reusable returns the blocks of init containers that have ended when the container starts.
func (l *ledger) reusable(r target) []*Block {
	if r.pod == nil {
		return nil
	}
	var out []*Block
	for i := range r.pod.Spec.InitContainers {
		earlier := &r.pod.Spec.InitContainers[i]
		if earlier.Name == r.c.Name {
			break
		}
		if list := l.allocated[r.pod.UID][earlier.Name]; !status.Sidecar(earlier) {
			for i := range list {
				out = append(out, &list[i])
			}
		}
	}
	return out
}

// fits reports whether enough of all resources is free on the set.
func (l *ledger) fits(set topology.Nodes, want map[corev1.ResourceName]int64, r target) bool {
	if !l.usable(set) {
		return false
	}
	for name, n := range want {
		if l.free(set, name, r) < n {
			return false
		}
	}
	return true
}

// all returns the set of all nodes.
func (l *ledger) all() topology.Nodes {
	return topology.NewNodes(slices.Collect(maps.Keys(l.nodes))...)
}

// hints returns, for each resource, the sets on which enough of all resources is free. Sets with as few nodes as the
// resource needs on an empty machine are preferred.
func (l *ledger) hints(want map[corev1.ResourceName]int64, r target) map[string][]topology.Hint {
	out := map[string][]topology.Hint{}
	least := map[corev1.ResourceName]int{}
	for name := range want {
		out[string(name)], least[name] = []topology.Hint{}, len(l.nodes)
	}
	sets := l.all().Subsets()
	for _, set := range sets {
		for name, n := range want {
			if l.total(set, name) >= n {
				least[name] = min(least[name], set.Count())
			}
		}
	}
	for _, set := range sets {
		if !l.fits(set, want, r) {
			continue
		}
		for name := range want {
			out[string(name)] = append(out[string(name)], topology.Hint{Nodes: set, Preferred: set.Count() == least[name]})
		}
	}
	return out
}

// The messages are upstream's.
var (
	errInsufficient = errors.New("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	errNoExtent     = errors.New("failed to find NUMA nodes to extend the current topology hint")
	errWorse        = errors.New("failed to find the extended preferred hint")
)

// allocate allocates blocks for c on the hint's nodes and, if these do not have enough, on as few more as possible.
// changed is false if c already has its blocks.
func (l *ledger) allocate(pod *corev1.Pod, c *corev1.Container, want map[corev1.ResourceName]int64,
	hint topology.Hint) (changed bool, err error) {
	if len(l.allocated[pod.UID][c.Name]) > 0 {
		return false, nil
	}
	r := target{pod, c}
	set, err := l.choose(want, hint, r)
	if err != nil {
		return false, err
	}
	var blocks []Block
	for _, name := range slices.Sorted(maps.Keys(want)) {
		l.inherit(set, name, want[name], r)
		blocks = append(blocks, Block{set, name, want[name]})
	}
	if l.allocated[pod.UID] == nil {
		l.allocated[pod.UID] = map[string][]Block{}
	}
	l.allocated[pod.UID][c.Name] = blocks
	return true, nil
}

// choose returns the set of nodes to allocate from.
func (l *ledger) choose(want map[corev1.ResourceName]int64, hint topology.Hint, r target) (topology.Nodes, error) {
	if hint.Nodes != 0 && l.fits(hint.Nodes, want, r) {
		return hint.Nodes, nil
	}
	var sets []topology.Nodes
	for _, set := range l.all().Subsets() {
		if set&hint.Nodes == hint.Nodes && l.fits(set, want, r) {
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 && hint.Nodes == 0 {
		return 0, errInsufficient
	}
	if len(sets) == 0 {
		return 0, errNoExtent
	}
	best := slices.MinFunc(sets, func(a, b topology.Nodes) int {
		return cmp.Or(cmp.Compare(a.Count(), b.Count()), cmp.Compare(a, b))
	})
	if hint.Nodes != 0 && hint.Preferred && best.Count() > l.least(want) {
		return 0, errWorse
	}
	return best, nil
}

// least returns the number of nodes that the request needs on an empty machine.
func (l *ledger) least(want map[corev1.ResourceName]int64) int {
	least := len(l.nodes)
	for _, set := range l.all().Subsets() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)),
			func(name corev1.ResourceName) bool { return l.total(set, name) < want[name] }) {
			least = min(least, set.Count())
		}
	}
	return least
}

// inherit reduces the blocks of init containers that the container reuses, so that they count once.
func (l *ledger) inherit(set topology.Nodes, name corev1.ResourceName, need int64, r target) {
	for _, b := range l.reusable(r) {
		if b.Nodes == set && b.Type == name {
			taken := min(need, b.Size)
			b.Size, need = b.Size-taken, need-taken
		}
	}
}

// allocatable returns the allocatable amounts of all nodes.
func (l *ledger) allocatable() []Block {
	var out []Block
	for _, id := range slices.Sorted(maps.Keys(l.nodes)) {
		for _, name := range slices.Sorted(maps.Keys(l.nodes[id])) {
			out = append(out, Block{topology.NewNodes(id), name, l.nodes[id][name].allocatable()})
		}
	}
	return out
}
