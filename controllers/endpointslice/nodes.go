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

// nodes contains the properties of nodes that endpoints depend on.
type nodes struct {
	mu      sync.Mutex // guards the fields below
	of      map[string]node
	waiting map[string]map[follow.Key]bool // Services with pods on nodes that do not exist
}

type node struct {
	zone    string
	cpu     int64 // allocatable, in millicores
	counted bool  // whether hints consider its CPUs: it is ready and not a control-plane node
}

func newNodes() *nodes {
	return &nodes{of: map[string]node{}, waiting: map[string]map[follow.Key]bool{}}
}

// set records a change of a node. It returns the Services that waited for the node, whether its zone has changed, and
// whether anything else has.
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

// zones returns the zones of the pods' nodes, and the nodes that do not exist. Pods on those are not endpoints until
// the node exists, unless publishNotReadyAddresses is set.
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

// forget removes a Service.
func (x *nodes) forget(service follow.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, set := range x.waiting {
		if delete(set, service); len(set) == 0 {
			delete(x.waiting, name)
		}
	}
}
