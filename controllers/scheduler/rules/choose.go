package rules

import (
	"fmt"
	"slices"
	"strings"

	"monopod/controllers/scheduler/cluster"
)

// Set is a set of rules: bit i is the i-th rule of All.
type Set uint32

// Every is the set of all rules.
const Every = ^Set(0)

// Chooser chooses nodes by rules.
type Chooser struct {
	Rules []Rule
	next  int // index of the node at which the next search begins
}

// scoreState contains values that scores compute once for all nodes.
type scoreState struct {
	images      []string
	inter       map[string]map[string]int64
	soft        []*constraint
	someMissing bool
}

// Outcome is the result of an attempt.
type Outcome struct {
	Node     *cluster.Node // nil: no node fits
	Nodes    int           // number of nodes
	All      string        // reason why no node was filtered
	Refused  []Refused
	Skipped  Refusal // reason for the nodes that were not filtered
	Rejected Set     // rules that refused a node
}

// Refused is a node, and the reason why the pod does not fit.
type Refused struct {
	*cluster.Node
	Refusal
}

// enough returns the number of fitting nodes that are scored: a share that decreases with the size of the cluster
// (upstream's percentageOfNodesToScore of 0).
func enough(nodes int) int {
	if nodes <= 100 {
		return nodes
	}
	return max(100, nodes*max(5, 50-nodes/125)/100)
}

// Choose returns the best node for a pod, or the reasons why none fits.
func (ch *Chooser) Choose(c *Cycle) Outcome {
	nodes := c.Nodes()
	out := Outcome{Nodes: len(nodes)}
	if len(nodes) == 0 {
		out.All, out.Rejected = "no nodes available to schedule pods", Every
		return out
	}
	only, refused := ch.before(c, &out)
	if refused {
		return out
	}
	if n := c.Node(c.NominatedNode(c.Pod.UID)); n != nil && (only == nil || only[n.Name]) {
		if _, r := ch.Check(c, n); !r.Refused() {
			out.Node = n
			return out
		}
	}
	fitting := ch.filter(c, only, &out)
	if len(fitting) > 0 {
		out.Node = ch.best(c, fitting)
	}
	return out
}

// before calls the Before functions of the rules.
func (ch *Chooser) before(c *Cycle, out *Outcome) (only map[string]bool, refused bool) {
	var by []string
	for i := range ch.Rules {
		r := &ch.Rules[i]
		if r.Before == nil {
			continue
		}
		names, all := r.Before(c)
		if all.Refused() {
			out.All, out.Rejected, out.Skipped = all.Reasons[0], 1<<i, all
			return nil, true
		}
		if names != nil {
			only, out.Rejected = names, out.Rejected|1<<i
			by = append(by, r.Name)
		}
	}
	if only != nil {
		out.Skipped = refuseFinally(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", by))
	}
	return only, false
}

// filter returns the fitting nodes, at most as many as are scored.
func (ch *Chooser) filter(c *Cycle, only map[string]bool, out *Outcome) (fitting []*cluster.Node) {
	check := func(n *cluster.Node) {
		if rule, r := ch.Check(c, n); r.Refused() {
			out.Refused = append(out.Refused, Refused{n, r})
			out.Rejected |= 1 << rule
		} else {
			fitting = append(fitting, n)
		}
	}
	nodes := c.Nodes()
	if only != nil {
		for name := range only {
			if n := c.Node(name); n != nil {
				check(n)
			}
		}
		return fitting
	}
	most, checked := enough(len(nodes)), 0
	for ; checked < len(nodes) && len(fitting) < most; checked++ {
		check(nodes[(ch.next+checked)%len(nodes)])
	}
	ch.next = (ch.next + checked) % len(nodes)
	return fitting
}

// Check returns the reason why the pod does not fit on a node, and the index of the rule. The pod must fit both with
// and without the nominated pods of the same or a higher priority.
func (ch *Chooser) Check(c *Cycle, n *cluster.Node) (rule int, r Refusal) {
	if placed := c.placeNominated(n); len(placed) > 0 {
		rule, r = ch.check(c, n)
		for _, p := range placed {
			c.Remove(p.UID)
		}
		if r.Refused() {
			return rule, r
		}
	}
	return ch.check(c, n)
}

func (c *Cycle) placeNominated(n *cluster.Node) (placed []*cluster.Pod) {
	for uid, p := range n.Nominated {
		if uid != c.Pod.UID && p.Priority >= c.Pod.Priority && c.Cluster.Pod(uid) == nil {
			c.Add(p, n.Name)
			placed = append(placed, p)
		}
	}
	return placed
}

func (ch *Chooser) check(c *Cycle, n *cluster.Node) (rule int, r Refusal) {
	for i := range ch.Rules {
		if filter := ch.Rules[i].Filter; filter != nil {
			if r := filter(c, n); r.Refused() {
				return i, r
			}
		}
	}
	return 0, Refusal{}
}

// best returns the node with the highest score; among equals the first by name.
func (ch *Chooser) best(c *Cycle, nodes []*cluster.Node) *cluster.Node {
	if len(nodes) == 1 {
		return nodes[0]
	}
	total, scores := make([]int64, len(nodes)), make([]int64, len(nodes))
	for i := range ch.Rules {
		r := &ch.Rules[i]
		if r.Score == nil || r.Prepare != nil && !r.Prepare(c, nodes) {
			continue
		}
		for j, n := range nodes {
			scores[j] = r.Score(c, n)
		}
		if r.Normalize != nil {
			r.Normalize(c, nodes, scores)
		}
		for j := range nodes {
			total[j] += r.Weight * scores[j]
		}
	}
	best := 0
	for j, n := range nodes {
		if total[j] > total[best] || total[j] == total[best] && n.Name < nodes[best].Name {
			best = j
		}
	}
	return nodes[best]
}

// Message returns upstream's summary of the reasons why no node fits.
func (o *Outcome) Message() string {
	if o.Nodes == 0 {
		return o.All
	}
	if o.All != "" {
		return fmt.Sprintf("0/%d nodes are available: %s.", o.Nodes, o.All)
	}
	reasons := map[string]int{}
	for _, r := range o.Refused {
		for _, why := range r.Reasons {
			reasons[why]++
		}
	}
	if rest := o.Nodes - len(o.Refused); rest > 0 {
		for _, why := range o.Skipped.Reasons {
			reasons[why] += rest
		}
	}
	return Summary(o.Nodes, reasons)
}

// Summary returns a text with the number of nodes for each reason.
func Summary(nodes int, reasons map[string]int) string {
	parts := make([]string, 0, len(reasons))
	for why, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(parts, ", "))
}
