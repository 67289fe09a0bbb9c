package scheduler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Assumed requests of a container without requests, for scoring only (upstream DefaultMilliCPURequest,
// DefaultMemoryRequest).
const (
	assumedCPU    = 100
	assumedMemory = 200 << 20
)

// choose returns the best node for a pod, or why there is none. more are additional filters, which run last.
func choose(c *cache, pod *corev1.Pod, more ...filter) (node, why string) {
	var best *nodeState
	var bestScore int64
	total, reasons := 0, map[string]int{}
	for _, s := range c.nodes {
		if s.node == nil || s.node.DeletionTimestamp != nil {
			continue
		}
		total++
		if objects := objections(pod, s, more...); len(objects) > 0 {
			for _, o := range objects {
				reasons[o]++
			}
			continue
		}
		score := score(pod, s)
		if best == nil || score > bestScore || (score == bestScore && s.node.Name < best.node.Name) {
			best, bestScore = s, score
		}
	}
	if best == nil {
		return "", explain(total, reasons)
	}
	return best.node.Name, ""
}

// explain summarizes why no node fits, in upstream's form.
func explain(total int, reasons map[string]int) string {
	if total == 0 {
		return "no nodes available to schedule pods"
	}
	parts := make([]string, 0, len(reasons))
	for why, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(parts)
	return explainAll(total, strings.Join(parts, ", "))
}

// explainAll returns one reason for all nodes.
func explainAll(total int, why string) string {
	return fmt.Sprintf("0/%d nodes are available: %s.", total, why)
}

// score is higher for a node with more free resources (0 to 100, upstream's LeastAllocated), fewer
// PreferNoSchedule taints (at most 3 × 100), and more of the pod's preferences (at most 2 × 100).
func score(pod *corev1.Pod, on *nodeState) int64 {
	return room(pod, on) + 3*unavoided(pod, on.node) + 2*preferred(pod, on.node)
}

// room is the mean of the free shares of CPU and memory with the pod on the node.
func room(pod *corev1.Pod, on *nodeState) int64 {
	takes := requests(pod)
	free := func(name corev1.ResourceName, assumed int64) int64 {
		has, taken := on.has[name], on.taken[name]+cmp.Or(takes[name], assumed*int64(len(pod.Spec.Containers)))
		if has == 0 || taken > has {
			return 0
		}
		return (has - taken) * 100 / has
	}
	return (free(corev1.ResourceCPU, assumedCPU) + free(corev1.ResourceMemory, assumedMemory)) / 2
}

// unavoided is 100 without PreferNoSchedule taints that are not tolerated, and halves with each.
func unavoided(pod *corev1.Pod, n *corev1.Node) int64 {
	value := int64(100)
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(pod, &t) {
			value /= 2
		}
	}
	return value
}

// preferred is the share, in percent, of the weights of the preferred terms that the node matches.
func preferred(pod *corev1.Pod, n *corev1.Node) int64 {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return 0
	}
	wanted := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(wanted)
	if err != nil {
		return 0
	}
	var sum int64
	for _, t := range wanted {
		sum += int64(t.Weight)
	}
	if sum == 0 {
		return 0
	}
	return terms.Score(n) * 100 / sum
}
