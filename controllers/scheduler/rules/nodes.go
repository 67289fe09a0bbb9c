package rules

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"monopod/controllers/scheduler/cluster"
)

func tolerates(p *cluster.Pod, taint *corev1.Taint) bool {
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, taint, false)
}

func unschedulable(c *Cycle, n *cluster.Node) Refusal {
	if !n.Spec.Unschedulable ||
		tolerates(c.Pod, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}) {
		return Refusal{}
	}
	return refuseFinally("node(s) were unschedulable")
}

func nodeName(c *Cycle, n *cluster.Node) Refusal {
	if want := c.Pod.Spec.NodeName; want != "" && want != n.Name {
		return refuseFinally("node(s) didn't match the requested node name")
	}
	return Refusal{}
}

func taints(c *Cycle, n *cluster.Node) Refusal {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerates(c.Pod, t) {
			return refuseFinally("node(s) had untolerated taint(s)")
		}
	}
	return Refusal{}
}

// avoided counts the PreferNoSchedule taints that the pod does not tolerate.
func avoided(c *Cycle, n *cluster.Node) int64 {
	var count int64
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(c.Pod, t) {
			count++
		}
	}
	return count
}

func anyAvoided(_ *Cycle, nodes []*cluster.Node) bool {
	return slices.ContainsFunc(nodes, func(n *cluster.Node) bool {
		return slices.ContainsFunc(n.Taints,
			func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
	})
}

func affinity(c *Cycle, n *cluster.Node) Refusal {
	if ok, err := c.required.Match(n.Node); !ok || err != nil {
		return refuseFinally("node(s) didn't match Pod's node affinity/selector")
	}
	return Refusal{}
}

// namedNodes returns the nodes that every term of the pod's affinity requires by name, as for the pods of a DaemonSet,
// so that the scheduler filters no others.
func namedNodes(c *Cycle) (map[string]bool, Refusal) {
	a := c.Pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil, Refusal{}
	}
	var only map[string]bool
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		names, named := namesOf(term)
		if !named {
			return nil, Refusal{}
		}
		if only == nil {
			only = map[string]bool{}
		}
		for name := range names {
			only[name] = true
		}
	}
	if only != nil && len(only) == 0 {
		return nil, refuseFinally("pod affinity terms conflict")
	}
	return only, Refusal{}
}

// namesOf returns the names that satisfy all of a term's requirements for names; false if it has none.
func namesOf(term corev1.NodeSelectorTerm) (names map[string]bool, named bool) {
	for _, r := range term.MatchFields {
		if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		these := map[string]bool{}
		for _, name := range r.Values {
			if names == nil || names[name] {
				these[name] = true
			}
		}
		names, named = these, true
	}
	return names, named
}

func anyPreferred(c *Cycle, _ []*cluster.Node) bool {
	a := c.Pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return false
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	c.preferred = terms
	return err == nil
}

// preferred returns the sum of the weights of the preferred terms that the node matches.
func preferred(c *Cycle, n *cluster.Node) int64 { return c.preferred.Score(n.Node) }

func ports(c *Cycle, n *cluster.Node) Refusal {
	if n.PortsTaken(c.Pod) {
		return refuse("node(s) didn't have free ports for the requested pod ports")
	}
	return Refusal{}
}

func portsFreed(_ *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	return ch.ChangeKind&cluster.NodeAdded != 0 || ch.Pod != nil && p.Conflicts(ch.Pod)
}

// mostIsBest scales scores so that the highest is 100.
func mostIsBest(_ *Cycle, _ []*cluster.Node, scores []int64) {
	most := slices.Max(scores)
	if most == 0 {
		return
	}
	for i := range scores {
		scores[i] = scores[i] * best / most
	}
}

// fewestIsBest scales scores so that 0 becomes 100 and the highest 0.
func fewestIsBest(c *Cycle, nodes []*cluster.Node, scores []int64) {
	mostIsBest(c, nodes, scores)
	for i := range scores {
		scores[i] = best - scores[i]
	}
}
