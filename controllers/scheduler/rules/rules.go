// Package rules contains the scheduling rules. A rule is an entry of All: its filter refuses nodes, its score ranks
// them, and its Wakes and Hint name the changes that may end a refusal. The rules are the plugins of upstream's default
// profile, with their names, messages and weights. They are pure functions of a cluster.
package rules

import (
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod/controllers/scheduler/cluster"
)

// Refusal contains the reasons why a node does not fit, in upstream's words; without reasons the node fits.
type Refusal struct {
	Reasons []string
	// Final: removing pods from the node does not help (upstream: UnschedulableAndUnresolvable).
	Final bool
}

// Refused reports whether there is a reason.
func (r Refusal) Refused() bool { return len(r.Reasons) > 0 }

func refuse(why string) Refusal { return Refusal{Reasons: []string{why}} }

func refuseFinally(why string) Refusal { return Refusal{Reasons: []string{why}, Final: true} }

// Rule is a plugin. All functions may be nil.
type Rule struct {
	Name string

	// Before runs once for a pod. It may refuse all nodes, or return the only nodes to filter.
	Before func(c *Cycle) (only map[string]bool, all Refusal)
	// Filter returns why the pod cannot run on a node.
	Filter func(c *Cycle, n *cluster.Node) Refusal

	// Wakes contains the kinds of changes that may end a refusal. Hint reports whether a change of these kinds may do so
	// for a pod; nil: every one.
	Wakes cluster.ChangeKind
	Hint  func(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool

	// Score ranks the fitting nodes, from 0 to 100 after Normalize. It returns false if it has no preference for this pod.
	// Weight multiplies it.
	Weight    int64
	Prepare   func(c *Cycle, nodes []*cluster.Node) bool
	Score     func(c *Cycle, n *cluster.Node) int64
	Normalize func(c *Cycle, nodes []*cluster.Node, scores []int64)
}

// best is the highest score of a rule.
const best = 100

// All returns the rules in upstream's order of filters.
func All() []Rule {
	return []Rule{
		{Name: "NodeUnschedulable", Filter: unschedulable, Wakes: cluster.NodeAdded | cluster.NodeTaints,
			Hint: onNode(unschedulable)},
		{Name: "NodeName", Filter: nodeName, Wakes: cluster.NodeAdded, Hint: onNode(nodeName)},
		{Name: "TaintToleration", Filter: taints, Wakes: cluster.NodeAdded | cluster.NodeTaints, Hint: onNode(taints),
			Weight: 3, Prepare: anyAvoided, Score: avoided, Normalize: fewestIsBest},
		{Name: "NodeAffinity", Before: namedNodes, Filter: affinity, Wakes: cluster.NodeAdded | cluster.NodeLabels,
			Hint:   onNode(affinity),
			Weight: 2, Prepare: anyPreferred, Score: preferred, Normalize: mostIsBest},
		{Name: "NodePorts", Filter: ports, Wakes: cluster.NodeAdded | cluster.PodGone, Hint: portsFreed},
		{Name: "NodeResourcesFit", Filter: fits,
			Wakes:  cluster.NodeAdded | cluster.NodeAllocatable | cluster.PodGone | cluster.PodShrunk | cluster.DevicesOffered,
			Hint:   fitsNow,
			Weight: 1, Score: leastAllocated},
		{Name: "VolumeRestrictions", Filter: alone, Wakes: cluster.PodGone | cluster.Claims, Hint: claimFreed},
		{Name: "NodeVolumeLimits", Filter: volumeLimits,
			Wakes: cluster.PodGone | cluster.CSINodes | cluster.CSIDrivers | cluster.Detached | cluster.Claims | cluster.Volumes},
		{Name: "VolumeBinding", Before: unusableClaims, Filter: volumes,
			Wakes: cluster.AnyNode | cluster.NodeRemoved | cluster.Claims | cluster.Volumes | cluster.Classes |
				cluster.CSIDrivers | cluster.MoreCapacity,
			Hint:   ownClaim,
			Weight: 1, Prepare: anyOpenClaim, Score: freeStorage},
		{Name: "VolumeZone", Filter: volumeZone,
			Wakes: cluster.NodeAdded | cluster.NodeLabels | cluster.Claims | cluster.Volumes},
		{Name: "PodTopologySpread", Filter: spread,
			Wakes: cluster.AnyNode | cluster.NodeRemoved | cluster.PodPlaced | cluster.PodGone, Hint: spreadChanged,
			Weight: 2, Prepare: prepareSpread, Score: spreadScore, Normalize: normalizeSpread},
		{Name: "InterPodAffinity", Filter: interPod,
			Wakes:  cluster.NodeAdded | cluster.NodeLabels | cluster.PodPlaced | cluster.PodGone | cluster.NamespaceLabels,
			Hint:   interPodChanged,
			Weight: 2, Prepare: prepareInterPod, Score: interPodScore, Normalize: normalizeInterPod},
		{Name: dynamicResources, Before: unusableDevices, Filter: devices,
			Wakes: cluster.AnyNode | cluster.ResourceClaims | cluster.DevicesFreed | cluster.DevicesOffered,
			Hint:  devicesChanged},
		{Name: "NodeResourcesBalancedAllocation", Weight: 1, Prepare: anyRequest, Score: balanced},
		{Name: "ImageLocality", Weight: 1, Prepare: anyImage, Score: imageLocality},
	}
}

// Cycle is one attempt to place a pod, with the values that rules compute once for all nodes.
type Cycle struct {
	*cluster.Cluster
	Pod *cluster.Pod

	required  nodeaffinity.RequiredNodeAffinity
	preferred *nodeaffinity.PreferredSchedulingTerms
	inter     memo[interState]
	spread    memo[spreadState]
	volumes   *volumeState
	devices   *deviceState
	scores    scoreState
}

// NewCycle begins an attempt.
func NewCycle(all *cluster.Cluster, pod *cluster.Pod) *Cycle {
	return &Cycle{Cluster: all, Pod: pod, required: nodeaffinity.GetRequiredNodeAffinity(pod.Pod)}
}

// memo caches a rule's state. The state is computed again after a change of the cluster, for example when preemption
// tries the removal of pods.
type memo[T any] struct {
	value      *T
	generation int64
}

func (m *memo[T]) get(c *Cycle, compute func(c *Cycle) *T) *T {
	if m.value == nil || m.generation != c.Generation {
		m.value, m.generation = compute(c), c.Generation
	}
	return m.value
}

// onNode returns the Hint of a filter that depends only on one node: a change helps if the filter now accepts the node.
func onNode(filter func(*Cycle, *cluster.Node) Refusal) func(*cluster.Cluster, *cluster.Pod, cluster.Change) bool {
	return func(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
		return ch.Node != nil && !filter(NewCycle(all, p), ch.Node).Refused()
	}
}
