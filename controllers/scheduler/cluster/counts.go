package cluster

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// maxCounts is the maximum number of cached counts; the least recently used one is evicted.
const maxCounts = 256

// Count contains the number of pods on each node that a selector selects. It is updated incrementally while it is
// cached, so that placing a pod does not require a scan of all pods.
type Count struct {
	*Selector
	ByNode map[string]int // only nodes with selected pods
	used   int64
}

// termCount contains the number of pods on each node that have a term.
type termCount struct {
	*Term
	byNode map[string]int
}

// CountOf returns the count of a selector. The caller must not keep it.
func (c *Cluster) CountOf(s *Selector) *Count {
	c.uses++
	n := c.counts[s.key]
	if n == nil {
		if len(c.counts) >= maxCounts {
			c.forgetCount()
		}
		n = &Count{Selector: s, ByNode: map[string]int{}}
		for _, p := range c.pods {
			if s.Selects(p.Pod, c.namespaces) {
				n.ByNode[p.Node]++
			}
		}
		c.counts[s.key] = n
	}
	n.used = c.uses
	return n
}

func (c *Cluster) forgetCount() {
	var oldest *Count
	for _, n := range c.counts {
		if oldest == nil || n.used < oldest.used {
			oldest = n
		}
	}
	delete(c.counts, oldest.key)
}

// updateCounts adds sign to every count that the pod belongs to.
func (c *Cluster) updateCounts(p *Pod, sign int) {
	for _, n := range c.counts {
		if n.Selects(p.Pod, c.namespaces) {
			bump(n.ByNode, p.Node, sign)
		}
	}
	if p.Owner != "" && p.DeletionTimestamp == nil {
		if c.owned[p.Owner] == nil {
			c.owned[p.Owner] = map[string]int{}
		}
		if bump(c.owned[p.Owner], p.Node, sign); len(c.owned[p.Owner]) == 0 {
			delete(c.owned, p.Owner)
		}
	}
	for _, t := range p.Terms {
		have := c.termCounts[t.id]
		if have == nil {
			have = &termCount{Term: t, byNode: map[string]int{}}
			c.termCounts[t.id] = have
		}
		if bump(have.byNode, p.Node, sign); len(have.byNode) == 0 {
			delete(c.termCounts, t.id)
		}
	}
}

func bump(counts map[string]int, node string, by int) {
	if counts[node] += by; counts[node] <= 0 {
		delete(counts, node)
	}
}

// Owned returns the number of pods on each node that a controller owns and that are not being deleted. The caller must
// not change it.
func (c *Cluster) Owned(by types.UID) map[string]int { return c.owned[by] }

// EachTerm calls f for each term of placed pods, with the number of pods on each node that have the term. f must not
// keep or change the map.
func (c *Cluster) EachTerm(f func(t *Term, byNode map[string]int)) {
	for _, have := range c.termCounts {
		f(have.Term, have.byNode)
	}
}

// ByDomain sums the counts of nodes by the value of their label.
func (c *Cluster) ByDomain(topology string, byNode map[string]int) map[string]int {
	sums := map[string]int{}
	for name, count := range byNode {
		if n := c.nodes[name]; n.exists() {
			if value, ok := n.Labels[topology]; ok {
				sums[value] += count
			}
		}
	}
	return sums
}

// SetNamespace records a namespace's labels; nil: it was deleted.
func (c *Cluster) SetNamespace(name string, set labels.Set) (changed bool) {
	old, had := c.namespaces[name]
	if had == (set != nil) && labels.Equals(old, set) {
		return false
	}
	if set == nil {
		delete(c.namespaces, name)
	} else {
		c.namespaces[name] = set
	}
	clear(c.counts) // they are computed again when needed
	c.Generation++
	return true
}

// Namespaces returns the labels of each namespace.
func (c *Cluster) Namespaces() map[string]labels.Set { return c.namespaces }
