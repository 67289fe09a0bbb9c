package rules

import (
	"slices"

	"monopod/controllers/scheduler/cluster"
)

// hardWeight is the weight of a placed pod's required affinity to the pod in scores (upstream's HardPodAffinityWeight).
const hardWeight = 1

// domains maps the values of a topology label to counts or weights.
type domains struct {
	topology string
	counts   map[string]int
}

func (d *domains) at(n *cluster.Node) int { return d.counts[n.Labels[d.topology]] }

// interState contains the pods that match the pod's inter-pod affinity, and those whose affinity matches the pod, by
// domain.
type interState struct {
	affinity             []domains // for each required term: pods that match all of them
	first                bool      // no pod matches, but the pod itself does: it may be the first
	antiAffinity         []domains // for each anti-affinity term: pods that match it
	existingAntiAffinity []domains // for each anti-affinity term of placed pods that matches the pod: pods that have it
}

func termsOf(p *cluster.Pod, kind cluster.TermKind) []*cluster.Term {
	var out []*cluster.Term
	for _, t := range p.Terms {
		if t.Kind == kind {
			out = append(out, t)
		}
	}
	return out
}

func computeInter(c *Cycle) *interState {
	var s interState
	if required := termsOf(c.Pod, cluster.Requires); len(required) > 0 {
		all := allOf(required)
		matching := c.CountOf(all)
		found := false
		for _, t := range required {
			d := domains{t.Topology, c.ByDomain(t.Topology, matching.ByNode)}
			found = found || len(d.counts) > 0
			s.affinity = append(s.affinity, d)
		}
		s.first = !found && all.Selects(c.Pod.Pod, c.Namespaces())
	}
	for _, t := range termsOf(c.Pod, cluster.Excludes) {
		s.antiAffinity = append(s.antiAffinity, domains{t.Topology, c.ByDomain(t.Topology, c.CountOf(t.Selector).ByNode)})
	}
	c.EachTerm(func(t *cluster.Term, byNode map[string]int) {
		if t.Kind == cluster.Excludes && t.Selects(c.Pod.Pod, c.Namespaces()) {
			s.existingAntiAffinity = append(s.existingAntiAffinity, domains{t.Topology, c.ByDomain(t.Topology, byNode)})
		}
	})
	return &s
}

func allOf(terms []*cluster.Term) *cluster.Selector {
	selectors := make([]*cluster.Selector, len(terms))
	for i, t := range terms {
		selectors[i] = t.Selector
	}
	return cluster.AllOf(selectors)
}

// interPod checks the pod's required affinity and anti-affinity, and the anti-affinity of placed pods to the pod.
func interPod(c *Cycle, n *cluster.Node) Refusal {
	s := c.inter.get(c, computeInter)
	for i := range s.affinity {
		d := &s.affinity[i]
		if _, ok := n.Labels[d.topology]; !ok || d.at(n) == 0 && !s.first {
			return refuseFinally("node(s) didn't match pod affinity rules")
		}
	}
	holds := func(d domains) bool {
		_, ok := n.Labels[d.topology]
		return ok && d.at(n) > 0
	}
	switch {
	case slices.ContainsFunc(s.antiAffinity, holds):
		return refuse("node(s) didn't match pod anti-affinity rules")
	case slices.ContainsFunc(s.existingAntiAffinity, holds):
		return refuse("node(s) didn't satisfy existing pods anti-affinity rules")
	}
	return Refusal{}
}

// interPodChanged reports whether a change may end a refusal: a required pod was placed, an excluded or excluding pod
// was removed, or a node joined a domain.
func interPodChanged(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	if ch.ChangeKind&cluster.NamespaceLabels != 0 {
		return true
	}
	if ch.ChangeKind&(cluster.NodeAdded|cluster.NodeLabels) != 0 {
		return true
	}
	if ch.Pod == nil {
		return false
	}
	selects := func(by, of *cluster.Pod, kind cluster.TermKind) bool {
		return slices.ContainsFunc(termsOf(by, kind),
			func(t *cluster.Term) bool { return t.Selects(of.Pod, all.Namespaces()) })
	}
	if ch.ChangeKind&cluster.PodPlaced != 0 && selects(p, ch.Pod, cluster.Requires) {
		return true
	}
	// If the last matching pod was removed, the pod may be the first.
	return ch.ChangeKind&cluster.PodGone != 0 &&
		(selects(p, ch.Pod, cluster.Excludes) || selects(ch.Pod, p, cluster.Excludes) || selects(p, ch.Pod, cluster.Requires))
}

// prepareInterPod sums the weights of each domain: of the pods that the pod prefers, and of the pods that prefer or
// require it.
func prepareInterPod(c *Cycle, _ []*cluster.Node) bool {
	sums := map[string]map[string]int64{}
	add := func(topology string, byNode map[string]int, weight int64) {
		if sums[topology] == nil {
			sums[topology] = map[string]int64{}
		}
		for value, count := range c.ByDomain(topology, byNode) {
			sums[topology][value] += int64(count) * weight
		}
	}
	for _, t := range termsOf(c.Pod, cluster.Prefers) {
		add(t.Topology, c.CountOf(t.Selector).ByNode, t.Weight)
	}
	c.EachTerm(func(t *cluster.Term, byNode map[string]int) {
		weight := t.Weight
		switch t.Kind {
		case cluster.Excludes:
			return
		case cluster.Requires:
			weight = hardWeight
		case cluster.Prefers:
		}
		if t.Selects(c.Pod.Pod, c.Namespaces()) {
			add(t.Topology, byNode, weight)
		}
	})
	c.scores.inter = sums
	return len(sums) > 0
}

func interPodScore(c *Cycle, n *cluster.Node) int64 {
	var sum int64
	for topology, values := range c.scores.inter {
		if value, ok := n.Labels[topology]; ok {
			sum += values[value]
		}
	}
	return sum
}

// normalizeInterPod scales scores to the range from 0 to 100.
func normalizeInterPod(_ *Cycle, _ []*cluster.Node, scores []int64) {
	least, most := slices.Min(scores), slices.Max(scores)
	for i := range scores {
		if most == least {
			scores[i] = 0
			continue
		}
		scores[i] = best * (scores[i] - least) / (most - least)
	}
}
