package rules

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"monopod/controllers/scheduler/cluster"
)

const (
	whySkewed    = "node(s) didn't match pod topology spread constraints"
	whyNoneLabel = whySkewed + " (missing required label)"
)

// constraint is a topology spread constraint with the counts of its domains. Its selector includes matchLabelKeys,
// which the API server adds.
type constraint struct {
	topology   string
	maxSkew    int
	minDomains int
	selector   labels.Selector
	affinity   bool // ignore nodes that the pod's node affinity and selector do not match
	taints     bool // ignore nodes with taints that the pod does not tolerate

	byNode map[string]int // number of matching pods
	counts map[string]int // by domain; without ignored nodes
	least  int            // lowest count of a domain
	weight float64        // in scores
}

type spreadState struct{ hard []*constraint }

func constraints(c *Cycle, when corev1.UnsatisfiableConstraintAction) []*constraint {
	var out []*constraint
	for i := range c.Pod.Spec.TopologySpreadConstraints {
		from := &c.Pod.Spec.TopologySpreadConstraints[i]
		if from.WhenUnsatisfiable != when {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(from.LabelSelector)
		if err != nil {
			selector = labels.Nothing()
		}
		out = append(out, &constraint{
			topology: from.TopologyKey, maxSkew: int(from.MaxSkew), selector: selector,
			minDomains: int(ptr.Deref(from.MinDomains, 1)),
			affinity:   ptr.Deref(from.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor,
			taints:     ptr.Deref(from.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor,
		})
	}
	return out
}

func (k *constraint) eligible(c *Cycle, n *cluster.Node) bool {
	return (!k.affinity || !affinity(c, n).Refused()) && (!k.taints || !taints(c, n).Refused())
}

func hasAll(n *cluster.Node, all []*constraint) bool {
	for _, k := range all {
		if _, ok := n.Labels[k.topology]; !ok {
			return false
		}
	}
	return true
}

// count fills in the constraints' counts: of nodes that have the labels of all of them, unless some may be missing.
func count(c *Cycle, all []*constraint, someMissing bool) {
	for _, k := range all {
		if k.byNode == nil {
			k.byNode = c.CountOf(cluster.InNamespace(c.Pod.Namespace, k.selector)).ByNode
		}
		k.counts = map[string]int{}
	}
	for _, n := range c.Nodes() {
		if !someMissing && !hasAll(n, all) {
			continue
		}
		for _, k := range all {
			if value, ok := n.Labels[k.topology]; ok && k.eligible(c, n) {
				k.counts[value] += k.byNode[n.Name]
			}
		}
	}
}

func computeSpread(c *Cycle) *spreadState {
	s := &spreadState{hard: constraints(c, corev1.DoNotSchedule)}
	if len(s.hard) == 0 {
		return s
	}
	count(c, s.hard, false)
	for _, k := range s.hard {
		if len(k.counts) < k.minDomains {
			continue // a missing domain has no pods
		}
		k.least = math.MaxInt32
		for _, v := range k.counts {
			k.least = min(k.least, v)
		}
	}
	return s
}

func spread(c *Cycle, n *cluster.Node) Refusal {
	for _, k := range c.spread.get(c, computeSpread).hard {
		value, ok := n.Labels[k.topology]
		if !ok {
			return refuseFinally(whyNoneLabel)
		}
		self := 0
		if k.selector.Matches(labels.Set(c.Pod.Labels)) {
			self = 1
		}
		if k.counts[value]+self-k.least > k.maxSkew {
			return refuse(whySkewed)
		}
	}
	return Refusal{}
}

// spreadChanged reports whether a change can end a refusal: any of a node, and of pods those that count.
func spreadChanged(_ *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	if ch.Pod == nil {
		return true
	}
	if ch.Pod.Namespace != p.Namespace {
		return false
	}
	for i := range p.Spec.TopologySpreadConstraints {
		by, err := metav1.LabelSelectorAsSelector(p.Spec.TopologySpreadConstraints[i].LabelSelector)
		if err == nil && by.Matches(labels.Set(ch.Pod.Labels)) {
			return true
		}
	}
	return false
}

// usualSpread is what counts for pods without constraints (upstream's system defaults): that the pods of a
// controller, or otherwise those of the same Services, are on different nodes and in different zones.
func usualSpread(c *Cycle) []*constraint {
	byNode := c.Owned(c.Pod.Owner)
	if !replicated(c.Pod.Pod) {
		if s := c.Serving(c.Pod); s != nil {
			byNode = c.CountOf(s).ByNode
		}
	}
	if len(byNode) == 0 {
		return nil
	}
	return []*constraint{
		{topology: corev1.LabelHostname, maxSkew: 3, affinity: true, byNode: byNode},
		{topology: corev1.LabelTopologyZone, maxSkew: 5, affinity: true, byNode: byNode},
	}
}

// replicated reports whether the pod's controller has a selector of its own, which Services do not widen.
func replicated(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && slices.Contains([]string{"ReplicaSet", "ReplicationController", "StatefulSet"}, owner.Kind)
}

// prepareSpread counts the domains of the constraints that are only preferred, and weighs each by the number of
// domains among the nodes.
func prepareSpread(c *Cycle, nodes []*cluster.Node) bool {
	s := &c.scores
	s.soft, s.someMissing = constraints(c, corev1.ScheduleAnyway), false
	if len(c.Pod.Spec.TopologySpreadConstraints) == 0 {
		s.soft, s.someMissing = usualSpread(c), true
	}
	if len(s.soft) == 0 {
		return false
	}
	count(c, s.soft, s.someMissing)
	for _, k := range s.soft {
		seen := map[string]bool{}
		for _, n := range nodes {
			if value, ok := n.Labels[k.topology]; ok && (s.someMissing || hasAll(n, s.soft)) {
				seen[value] = true
			}
		}
		k.weight = math.Log(float64(len(seen) + 2))
	}
	return true
}

// missing is the score of a node without the labels, before normalizeSpread.
const missing = -1

func spreadScore(c *Cycle, n *cluster.Node) int64 {
	if !c.scores.someMissing && !hasAll(n, c.scores.soft) {
		return missing
	}
	var sum float64
	for _, k := range c.scores.soft {
		if value, ok := n.Labels[k.topology]; ok {
			sum += float64(k.counts[value])*k.weight + float64(k.maxSkew-1)
		}
	}
	return int64(math.Round(sum))
}

// normalizeSpread turns the lowest number of pods into the highest score.
func normalizeSpread(_ *Cycle, _ []*cluster.Node, scores []int64) {
	var least, most int64 = math.MaxInt64, 0
	for _, v := range scores {
		if v != missing {
			least, most = min(least, v), max(most, v)
		}
	}
	for i, v := range scores {
		switch {
		case v == missing:
			scores[i] = 0
		case most == 0:
			scores[i] = best
		default:
			scores[i] = best * (most + least - v) / most
		}
	}
}
