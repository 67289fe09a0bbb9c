package scheduler

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"monopod/controllers/podstate"
)

// amounts are quantities in the scheduler's units: CPU in thousandths, all else
// in whole units.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

// requests returns a pod's requests: the sum of its containers or its largest init container, including sidecars
// and overhead, or the allocated resources in its status if these are more.
func requests(pod *corev1.Pod) amounts {
	return amountsOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
}

// placed is a pod on a node.
type placed struct {
	pod     *corev1.Pod
	node    string
	takes   amounts
	ports   []hostPort
	assumed bool // assumed, not yet seen in the API
}

// nodeState is a node with the requests of its pods. Either may be known first.
type nodeState struct {
	cluster *cache       // the cache
	node    *corev1.Node // nil while unknown
	has     amounts
	taken   amounts
	pods    map[types.UID]*placed
}

// cache is the scheduler's view of the cluster. The caller locks it.
type cache struct {
	nodes  map[string]*nodeState
	pods   map[types.UID]*placed
	loners map[*placed]struct{} // those with required anti-affinity
}

func newCache() *cache {
	return &cache{nodes: map[string]*nodeState{}, pods: map[types.UID]*placed{}, loners: map[*placed]struct{}{}}
}

func (c *cache) state(name string) *nodeState {
	s := c.nodes[name]
	if s == nil {
		s = &nodeState{cluster: c, taken: amounts{}, pods: map[types.UID]*placed{}}
		c.nodes[name] = s
	}
	return s
}

func (c *cache) setNode(n *corev1.Node) {
	s := c.state(n.Name)
	s.node, s.has = n, amountsOf(n.Status.Allocatable)
}

func (c *cache) dropNode(name string) {
	c.state(name).node = nil
	c.tidy(name)
}

// tidy removes a node that neither exists nor has pods.
func (c *cache) tidy(name string) {
	if s := c.nodes[name]; s != nil && s.node == nil && len(s.pods) == 0 {
		delete(c.nodes, name)
	}
}

func (c *cache) has(uid types.UID) bool { return c.pods[uid] != nil }

// observe updates the cache with a pod from the API and reports whether that freed resources for others. A pod
// whose binding is in progress stays on its node.
func (c *cache) observe(pod *corev1.Pod) (freed bool) {
	old := c.pods[pod.UID]
	if podstate.Finished(pod) {
		return c.remove(pod.UID)
	}
	if pod.Spec.NodeName == "" {
		return false
	}
	now := place(pod, pod.Spec.NodeName)
	c.remove(pod.UID)
	c.add(now)
	return old != nil && (old.node != now.node || less(now.takes, old.takes) || !maps.Equal(old.pod.Labels, pod.Labels))
}

// less reports whether a requests less of something than b.
func less(a, b amounts) bool {
	for name, v := range b {
		if a[name] < v {
			return true
		}
	}
	return false
}

// assume places a pod on the chosen node.
func (c *cache) assume(pod *corev1.Pod, node string) {
	p := place(pod, node)
	p.assumed = true
	c.add(p)
}

// forget removes an assumed pod, unless the API has confirmed it.
func (c *cache) forget(uid types.UID) {
	if p := c.pods[uid]; p != nil && p.assumed {
		c.remove(uid)
	}
}

func place(pod *corev1.Pod, node string) *placed {
	return &placed{pod: pod, node: node, takes: requests(pod), ports: hostPorts(pod)}
}

func (c *cache) add(p *placed) {
	s := c.state(p.node)
	c.pods[p.pod.UID], s.pods[p.pod.UID] = p, p
	if len(antiAffinity(p.pod)) > 0 {
		c.loners[p] = struct{}{}
	}
	for name, v := range p.takes {
		s.taken[name] += v
	}
}

func (c *cache) remove(uid types.UID) bool {
	p := c.pods[uid]
	if p == nil {
		return false
	}
	s := c.nodes[p.node]
	delete(c.pods, uid)
	delete(c.loners, p)
	delete(s.pods, uid)
	for name, v := range p.takes {
		s.taken[name] -= v
	}
	c.tidy(p.node)
	return true
}
