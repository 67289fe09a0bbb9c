package topology

import (
	"maps"
	"slices"

	"monopod/agent/resources/numa"
)

// nodeSets compares sets of the machine's NUMA nodes.
type nodeSets struct {
	all       Nodes
	distances map[int]map[int]int
	closest   bool // of two sets of the same size, prefer the one whose nodes are closer to each other
}

func newNodeSets(m *numa.Machine, closest bool) nodeSets {
	p := nodeSets{distances: map[int]map[int]int{}, closest: closest}
	for _, n := range m.Nodes {
		p.all |= NewNodes(n.ID)
		p.distances[n.ID] = n.Distances
	}
	return p
}

// better returns the set with fewer nodes. Of sets of the same size it returns the closer one if closest is set, then
// the one with the lower node IDs.
func (p nodeSets) better(a, b Nodes) Nodes {
	if a.Count() != b.Count() {
		if a.Count() < b.Count() {
			return a
		}
		return b
	}
	if p.closest {
		if x, y := p.distance(a), p.distance(b); x != y {
			if x < y {
				return a
			}
			return b
		}
	}
	return min(a, b)
}

// distance returns the sum of the distances between all nodes. Sets of the same size are ordered as by the average.
func (p nodeSets) distance(n Nodes) int {
	sum := 0
	for _, from := range n.IDs() {
		for _, to := range n.IDs() {
			sum += p.distances[from][to]
		}
	}
	return sum
}

// collect turns the providers' hints into one list for each resource.
func collect(answers []map[string][]Hint) [][]Hint {
	var out [][]Hint
	for _, answer := range answers {
		for _, resource := range slices.Sorted(maps.Keys(answer)) {
			switch hints := answer[resource]; {
			case hints == nil: // any node
			case len(hints) == 0:
				out = append(out, []Hint{{}})
			default:
				out = append(out, hints)
			}
		}
	}
	return out
}

// singleNodeOnly returns the preferred hints that have one node or no node.
func singleNodeOnly(lists [][]Hint) [][]Hint {
	out := make([][]Hint, len(lists))
	for i, hints := range lists {
		for _, h := range hints {
			if h.Preferred && h.Nodes.Count() <= 1 {
				out[i] = append(out[i], h)
			}
		}
	}
	return out
}

// merge returns the best nodes for all resources: it tries every combination of one hint for each resource and
// intersects them. If all intersections are empty, it returns all nodes, not preferred.
func (p nodeSets) merge(lists [][]Hint) Hint {
	if slices.ContainsFunc(lists, func(l []Hint) bool { return len(l) == 0 }) {
		return Hint{Nodes: p.all}
	}
	best, found, wanted := Hint{}, false, minNodes(lists)
	var walk func(rest [][]Hint, common, first Nodes, preferred bool)
	walk = func(rest [][]Hint, common, first Nodes, preferred bool) {
		if len(rest) == 0 {
			if h := (Hint{common, preferred}); common != 0 && (!found || p.beats(h, best, wanted)) {
				best, found = h, true
			}
			return
		}
		for _, h := range rest[0] {
			same, start := true, first
			common := common
			if h.Nodes != 0 {
				common &= h.Nodes
				if start == 0 {
					start = h.Nodes
				}
				same = start == h.Nodes
			}
			walk(rest[1:], common, start, preferred && same && h.Preferred)
		}
	}
	walk(lists, p.all, 0, true)
	if !found {
		return Hint{Nodes: p.all}
	}
	return best
}

// minNodes returns the minimum number of nodes of the resource that needs most nodes.
func minNodes(lists [][]Hint) int {
	most := 0
	for _, hints := range lists {
		least := 0
		for _, h := range hints {
			if n := h.Nodes.Count(); n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		most = max(most, least)
	}
	return most
}

// beats reports whether a is better than b. Among hints that are not preferred, the best have the wanted number of
// nodes. Hints with fewer nodes follow, those with most nodes first, then hints with more nodes.
func (p nodeSets) beats(a, b Hint, wanted int) bool {
	if a.Preferred != b.Preferred {
		return a.Preferred
	}
	x, y := a.Nodes.Count(), b.Nodes.Count()
	switch {
	case a.Nodes == b.Nodes:
		return false
	case a.Preferred || x == y || x > wanted && y > wanted:
		return p.better(a.Nodes, b.Nodes) == a.Nodes
	case y > wanted:
		return true
	case x > wanted:
		return false
	}
	return x > y
}
