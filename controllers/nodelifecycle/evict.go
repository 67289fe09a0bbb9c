package nodelifecycle

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/podstate"
)

// excludeDisruption is upstream's label of nodes that do not count for the disruption of their zone.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// Rates limits how fast the nodes of a zone get NoExecute taints.
type Rates struct {
	// Eviction is --node-eviction-rate, nodes a second; 0: never.
	Eviction float64 `json:"nodeEvictionRate"`
	// Secondary is --secondary-node-eviction-rate, of a large zone in which very many nodes are not ready.
	Secondary float64 `json:"secondaryNodeEvictionRate"`
	// Unhealthy is --unhealthy-zone-threshold, the share of those nodes.
	Unhealthy float64 `json:"unhealthyZoneThreshold"`
	// Large is --large-cluster-size-threshold: a zone with more nodes is large.
	Large int `json:"largeClusterSizeThreshold"`
}

// disruption is how many nodes of a zone are not ready: few, very many, or all.
type disruption int

const (
	normal disruption = iota
	partial
	full
)

// minUnready is the number of nodes that a partial disruption has at least (upstream: more than 2).
const minUnready = 3

// disruptionOf returns the disruption of a zone.
func (r Rates) disruptionOf(ready, unready int) disruption {
	switch {
	case ready == 0 && unready > 0:
		return full
	case unready >= minUnready && float64(unready)/float64(ready+unready) >= r.Unhealthy:
		return partial
	}
	return normal
}

// rate returns how many nodes a second get a NoExecute taint.
func (r Rates) rate(is disruption, size int) float64 {
	switch {
	case is != partial:
		return r.Eviction
	case size > r.Large:
		return r.Secondary
	}
	return 0
}

// zone is a failure domain of nodes.
type zone struct {
	ready, unready int
	last           time.Time // when one of its nodes got a NoExecute taint
}

// wait returns the time until the next node may get a NoExecute taint; false: not before a node changes.
func (z *zone) wait(r Rates, now time.Time) (time.Duration, bool) {
	rate := r.rate(r.disruptionOf(z.ready, z.unready), z.ready+z.unready)
	if rate <= 0 {
		return 0, false
	}
	if z.last.IsZero() {
		return 0, true
	}
	return max(0, time.Duration(float64(time.Second)/rate)-now.Sub(z.last)), true
}

// zoneOf returns the name of a node's zone; nodes without labels are in one.
func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}

// excluded reports whether the node does not count for the disruption of its zone.
func excluded(n *corev1.Node) bool {
	_, ok := n.Labels[excludeDisruption]
	return ok
}

// count updates the zones, and reports whether no node is ready.
func (r *run) count(nodes []*corev1.Node) (allLost bool) {
	zones := map[string]*zone{}
	allLost = true
	for _, n := range nodes {
		z := zones[zoneOf(n)]
		if z == nil {
			z = &zone{}
			if before := r.zones[zoneOf(n)]; before != nil {
				z.last = before.last
			}
			zones[zoneOf(n)] = z
		}
		switch {
		case excluded(n):
		case podstate.NodeReady(n):
			z.ready++
			allLost = false
		default:
			z.unready++
		}
	}
	r.zones = zones
	return allLost
}

// evictions sets the NoExecute taints of all nodes: those that are ready lose them at once, others get them at the
// rate of their zone. While no node is ready there are none: more likely this process is cut off than that every node
// has failed, and the pods could go nowhere.
func (r *run) evictions(ctx context.Context) (time.Duration, error) {
	nodes, err := client.List[*corev1.Node](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	allLost := r.count(nodes)
	if r.noneReady && !allLost {
		r.mu.Lock()
		for name, last := range r.heartbeats { // another grace period for every node: none could report before
			last.at = r.deps.Clock.Now()
			r.heartbeats[name] = last
		}
		r.mu.Unlock()
	}
	r.noneReady = allLost
	var again time.Duration
	var errs []error
	for _, n := range nodes {
		want := noExecuteFor(n)
		if allLost {
			want = ""
		}
		if want != "" && !slices.ContainsFunc(n.Spec.Taints, evicts) {
			z := r.zones[zoneOf(n)]
			now := r.deps.Clock.Now()
			wait, ok := z.wait(r.cfg.Rates, now)
			if ok && wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
			if !ok || wait > 0 {
				continue
			}
			z.last = now
		}
		errs = append(errs, r.noExecute(ctx, n, want))
	}
	return again, errors.Join(errs...)
}

// noExecuteFor returns the NoExecute taint that a node's Ready condition requires; empty: none.
func noExecuteFor(n *corev1.Node) string {
	switch podstate.ReadyStatus(n) {
	case corev1.ConditionFalse:
		return corev1.TaintNodeNotReady
	case corev1.ConditionUnknown:
		return corev1.TaintNodeUnreachable
	}
	return ""
}

// evicts reports whether the taint is one of evictions.
func evicts(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute &&
		(t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// noExecute makes want the only NoExecute taint of evictions that the node has; empty: none.
func (r *run) noExecute(ctx context.Context, node *corev1.Node, want string) error {
	right := func(n *corev1.Node) bool {
		has := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return !evicts(t) })
		return want == "" && len(has) == 0 || len(has) == 1 && has[0].Key == want
	}
	if right(node) {
		return nil
	}
	_, err := client.Update(ctx, r.deps.Client, node, "", func(n *corev1.Node) error {
		if n.UID != node.UID || right(n) {
			return errUnchanged
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, evicts)
		if want != "" {
			n.Spec.Taints = append(n.Spec.Taints,
				corev1.Taint{Key: want, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(r.deps.Clock.Now()))})
		}
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}
