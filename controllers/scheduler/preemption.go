// Preemption decides as upstream does. It tries the removal of pods on the cluster cache, and restores it afterwards.

package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// The messages are upstream's.
const (
	whyNever       = "not eligible due to preemptionPolicy=Never."
	whyTerminating = "not eligible due to a terminating pod on the nominated node."
	whyNoVictims   = "No preemption victims found for incoming pod"
	whyNotHelpful  = "Preemption is not helpful for scheduling"
)

// The search for candidates ends when their number is a tenth of the nodes, but at least 100.
const (
	minCandidates     = 100
	candidatesOfNodes = 10
)

// Candidate is a node and the pods that must be removed so that the pod fits there, the most important first.
type Candidate struct {
	*cluster.Node
	Victims    []*cluster.Pod
	Violations int // number of victims that a PodDisruptionBudget protects
}

// Finder finds candidates.
type Finder struct {
	Chooser *rules.Chooser
	next    int // index of the node at which the next search begins
}

// Find returns the best candidate for a pod that no node fits, or the reason why there is none.
func (f *Finder) Find(c *rules.Cycle, out *rules.Outcome,
	budgets []*policyv1.PodDisruptionBudget) (best *Candidate, why string) {
	reasons := map[string]int{whyNotHelpful: out.Nodes}
	var found []*Candidate
	most := max(minCandidates, out.Nodes/candidatesOfNodes)
	tried := 0
	for ; tried < len(out.Refused) && len(found) < most; tried++ {
		r := &out.Refused[(f.next+tried)%len(out.Refused)]
		if r.Final {
			continue
		}
		candidate, refusal := f.victims(c, r.Node, budgets)
		if candidate != nil {
			found = append(found, candidate)
			continue
		}
		reasons[whyNotHelpful]--
		for _, why := range refusal.Reasons {
			reasons[why]++
		}
	}
	f.next += tried
	if len(found) > 0 {
		return pick(found), ""
	}
	if reasons[whyNotHelpful] == 0 {
		delete(reasons, whyNotHelpful)
	}
	return nil, rules.Summary(out.Nodes, reasons)
}

// Ineligible returns the reason why an unschedulable pod must not preempt others now; empty if it may.
func Ineligible(c *rules.Cycle, out *rules.Outcome) string {
	if p := c.Pod.Spec.PreemptionPolicy; p != nil && *p == corev1.PreemptNever {
		return whyNever
	}
	n := c.Node(c.NominatedNode(c.Pod.UID))
	if n == nil || slices.ContainsFunc(out.Refused, func(r rules.Refused) bool { return r.Node == n && r.Final }) {
		return ""
	}
	for _, p := range n.Pods {
		if p.Priority < c.Pod.Priority && Preempted(p.Pod) {
			return whyTerminating
		}
	}
	return ""
}

// Preempted reports whether a pod is being deleted because of preemption.
func Preempted(p *corev1.Pod) bool {
	target := podstate.Condition(p, corev1.DisruptionTarget)
	return p.DeletionTimestamp != nil && target != nil && target.Status == corev1.ConditionTrue &&
		target.Reason == corev1.PodReasonPreemptionByScheduler
}

// victims returns the pods that must be removed from a node, or the reason why that does not help. It removes all pods
// of a lower priority, and then adds back as many as possible: first those that a budget protects, then the others,
// each the most important first.
func (f *Finder) victims(c *rules.Cycle, n *cluster.Node,
	budgets []*policyv1.PodDisruptionBudget) (*Candidate, rules.Refusal) {
	var lower []*cluster.Pod
	for _, p := range n.Pods {
		if p.Priority < c.Pod.Priority {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return nil, rules.Refusal{Reasons: []string{whyNoVictims}}
	}
	slices.SortFunc(lower, moreImportant)
	for _, p := range lower {
		c.Remove(p.UID)
	}
	if _, r := f.Chooser.Check(c, n); r.Refused() {
		for _, p := range lower {
			c.Add(p, n.Name)
		}
		return nil, r
	}
	candidate := &Candidate{Node: n}
	bringBack := func(pods []*cluster.Pod) (gone int) {
		for _, p := range pods {
			c.Add(p, n.Name)
			if _, r := f.Chooser.Check(c, n); r.Refused() {
				c.Remove(p.UID)
				candidate.Victims = append(candidate.Victims, p)
				gone++
			}
		}
		return gone
	}
	protected, others := split(lower, budgets)
	candidate.Violations = bringBack(protected)
	bringBack(others)
	for _, p := range candidate.Victims {
		c.Add(p, n.Name)
	}
	slices.SortFunc(candidate.Victims, moreImportant)
	return candidate, rules.Refusal{}
}

// moreImportant orders pods: a higher priority first, then those that started earlier.
func moreImportant(a, b *cluster.Pod) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), startTime(a).Compare(startTime(b)), cmp.Compare(a.UID, b.UID))
}

// startTime returns when a pod started. A pod that has not started counts as the youngest.
func startTime(p *cluster.Pod) time.Time {
	if p.Status.StartTime == nil {
		return time.Unix(math.MaxInt32, 0)
	}
	return p.Status.StartTime.Time
}

// split separates the pods whose removal would violate a PodDisruptionBudget if all of them were removed in order.
func split(pods []*cluster.Pod, budgets []*policyv1.PodDisruptionBudget) (protected, others []*cluster.Pod) {
	type budget struct {
		*policyv1.PodDisruptionBudget
		labels.Selector
		left int32
	}
	var all []*budget
	for _, b := range budgets {
		by, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && !by.Empty() { // upstream: an empty selector protects nothing here
			all = append(all, &budget{b, by, b.Status.DisruptionsAllowed})
		}
	}
	for _, p := range pods {
		violates := false
		for _, b := range all {
			if b.Namespace != p.Namespace || len(p.Labels) == 0 || !b.Matches(labels.Set(p.Labels)) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[p.Name]; counted {
				continue // the eviction is already counted in the budget's status
			}
			b.left--
			violates = violates || b.left < 0
		}
		if violates {
			protected = append(protected, p)
		} else {
			others = append(others, p)
		}
	}
	return protected, others
}

// pick returns the candidate with the fewest violated budgets, then the lowest highest priority of a victim, the
// smallest sum of priorities, the fewest victims, and the latest start of the victims with the highest priority.
func pick(all []*Candidate) *Candidate {
	return slices.MinFunc(all, func(a, b *Candidate) int {
		return cmp.Or(
			cmp.Compare(a.Violations, b.Violations),
			cmp.Compare(a.highest(), b.highest()),
			cmp.Compare(a.sum(), b.sum()),
			cmp.Compare(len(a.Victims), len(b.Victims)),
			b.earliest().Compare(a.earliest()))
	})
}

func (c *Candidate) highest() int32 {
	if len(c.Victims) == 0 {
		return math.MinInt32
	}
	return c.Victims[0].Priority
}

// sum adds priorities, shifted so that each is positive: few victims of a negative priority are better than many.
func (c *Candidate) sum() int64 {
	var sum int64
	for _, p := range c.Victims {
		sum += int64(p.Priority) + math.MaxInt32 + 1
	}
	return sum
}

// earliest returns the earliest start of the victims with the highest priority.
func (c *Candidate) earliest() time.Time {
	var first time.Time
	for _, p := range c.Victims {
		if at := startTime(p); p.Priority == c.highest() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
