package endpointslice

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/servicestate"
)

// nodes is what endpoints depend on of the nodes.
type nodes struct {
	mu      sync.Mutex // guards what follows
	of      map[string]node
	waiting map[string]map[follow.Key]bool // Services with pods on nodes that do not exist
}

type node struct {
	zone    string
	cpu     int64 // allocatable, in thousandths
	counted bool  // its CPUs count for hints: it is ready and not part of the control plane
}

func newNodes() *nodes {
	return &nodes{of: map[string]node{}, waiting: map[string]map[follow.Key]bool{}}
}

// set records a change of a node. It returns the Services that waited for it, whether its zone has changed, and
// whether anything has.
func (x *nodes) set(old, new client.Object) (waited []follow.Key, moved, changed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if new == nil {
		delete(x.of, old.GetName())
		return nil, false, true
	}
	was, known := x.of[new.GetName()]
	is := nodeOf(new.(*corev1.Node))
	x.of[new.GetName()] = is
	if !known {
		waited = slices.Collect(maps.Keys(x.waiting[new.GetName()]))
		delete(x.waiting, new.GetName())
	}
	return waited, known && was.zone != is.zone, was != is
}

func nodeOf(n *corev1.Node) node {
	_, controlPlane := n.Labels["node-role.kubernetes.io/control-plane"]
	_, master := n.Labels["node-role.kubernetes.io/master"]
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return node{zone: n.Labels[corev1.LabelTopologyZone], cpu: n.Status.Allocatable.Cpu().MilliValue(), counted: ready &&
		!controlPlane && !master}
}

// all returns the nodes.
func (x *nodes) all() []node {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.of))
}

// zones returns the zones of the pods' nodes, and the nodes that do not exist: their pods are no endpoints until
// they do, unless any is allowed.
func (x *nodes) zones(service follow.Key, pods []*corev1.Pod,
	any bool) (zones map[string]string, missing map[string]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	zones = map[string]string{}
	for _, p := range pods {
		name := p.Spec.NodeName
		n, known := x.of[name]
		zones[name] = n.zone
		if known || any || missing[name] || !servicestate.Member(p) {
			continue
		}
		if missing == nil {
			missing = map[string]bool{}
		}
		missing[name] = true
		if x.waiting[name] == nil {
			x.waiting[name] = map[follow.Key]bool{}
		}
		x.waiting[name][service] = true
	}
	return zones, missing
}

// forget drops a Service.
func (x *nodes) forget(service follow.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, set := range x.waiting {
		if delete(set, service); len(set) == 0 {
			delete(x.waiting, name)
		}
	}
}
