// Package cluster contains the scheduler's cache of the cluster: nodes with their pods and the sums of their requests,
// the number of pods that selectors select, and the properties of volumes and devices. A change of a pod updates only
// its node and the affected counts. The caller locks a Cluster.
package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/podstate"
)

// Node is a node with its pods. Pods may be added before their node.
type Node struct {
	*corev1.Node     // nil while only its pods are known
	Name             string
	Taints           []corev1.Taint // from its spec, and not-ready if it is not ready
	Allocatable      Amounts
	MaxPods          int64
	Requested        Amounts
	NonZeroRequested Amounts // see Pod.NonZeroRequests
	Pods             map[types.UID]*Pod
	Nominated        map[types.UID]*Pod // unbound pods that are nominated for the node
	Images           map[string]int64   // sizes by name
	usedHostPorts    int                // number of host ports in use
	index            int                // index in Cluster.list; -1: not listed
}

func (n *Node) exists() bool { return n != nil && n.index >= 0 }

// PortsTaken reports whether a pod's host ports conflict with those of the node's pods.
func (n *Node) PortsTaken(p *Pod) bool {
	if n.usedHostPorts == 0 || len(p.Ports) == 0 {
		return false
	}
	for _, other := range n.Pods {
		if p.Conflicts(other) {
			return true
		}
	}
	return false
}

// Cluster contains all nodes and pods.
type Cluster struct {
	// Generation increases with every change that the state of rules depends on.
	Generation int64
	Storage    Storage
	Devices    Devices

	nodes      map[string]*Node
	list       []*Node // nodes that exist and are not being deleted
	pods       map[types.UID]*Pod
	nominated  map[types.UID]*Pod
	images     map[string]int // number of nodes that have the image, by name
	namespaces map[string]labels.Set
	services   map[string]map[string]labels.Set // selectors of Services, by namespace and name
	counts     map[string]*Count
	termCounts map[string]*termCount
	owned      map[types.UID]map[string]int // number of pods on each node, by their controller
	claims     map[string]int               // number of placed pods that use the claim
	uses       int64
}

// New returns an empty cluster.
func New() *Cluster {
	return &Cluster{nodes: map[string]*Node{}, pods: map[types.UID]*Pod{}, nominated: map[types.UID]*Pod{},
		images: map[string]int{}, namespaces: map[string]labels.Set{}, services: map[string]map[string]labels.Set{},
		counts: map[string]*Count{}, termCounts: map[string]*termCount{}, owned: map[types.UID]map[string]int{},
		claims: map[string]int{}, Storage: newStorage(), Devices: newDevices()}
}

// Nodes returns the nodes that exist, in no particular order. The caller must not change the slice.
func (c *Cluster) Nodes() []*Node { return c.list }

// Node returns an existing node, or nil.
func (c *Cluster) Node(name string) *Node {
	if n := c.nodes[name]; n.exists() {
		return n
	}
	return nil
}

// Pod returns a placed pod, or nil.
func (c *Cluster) Pod(uid types.UID) *Pod { return c.pods[uid] }

// Pods returns the number of placed pods.
func (c *Cluster) Pods() int { return len(c.pods) }

// NodesWithImage returns how many nodes have an image.
func (c *Cluster) NodesWithImage(name string) int { return c.images[name] }

// ClaimUsers returns how many placed pods use a claim.
func (c *Cluster) ClaimUsers(key string) int { return c.claims[key] }

func (c *Cluster) state(name string) *Node {
	n := c.nodes[name]
	if n == nil {
		n = &Node{Name: name, Pods: map[types.UID]*Pod{}, index: -1}
		c.nodes[name] = n
	}
	return n
}

// SetNode adds or updates a node.
func (c *Cluster) SetNode(is *corev1.Node) {
	c.Generation++
	n := c.state(is.Name)
	for image := range n.Images {
		bump(c.images, image, -1)
	}
	n.Node, n.Taints, n.Allocatable = is, EffectiveTaints(is), AmountsOf(is.Status.Allocatable)
	n.MaxPods = is.Status.Allocatable.Pods().Value()
	n.Images = imagesOf(is)
	for image := range n.Images {
		c.images[image]++
	}
	switch listed := is.DeletionTimestamp == nil; {
	case listed && n.index < 0:
		n.index = len(c.list)
		c.list = append(c.list, n)
	case !listed:
		c.unlist(n)
	}
}

func imagesOf(n *corev1.Node) map[string]int64 {
	if len(n.Status.Images) == 0 {
		return nil
	}
	out := map[string]int64{}
	for _, image := range n.Status.Images {
		for _, name := range image.Names {
			out[name] = image.SizeBytes
		}
	}
	return out
}

// DropNode removes a node; its pods stay until they are removed.
func (c *Cluster) DropNode(name string) {
	n := c.nodes[name]
	if n == nil {
		return
	}
	c.Generation++
	for image := range n.Images {
		bump(c.images, image, -1)
	}
	n.Node, n.Images = nil, nil
	c.unlist(n)
	c.dropIfUnused(n)
}

func (c *Cluster) unlist(n *Node) {
	if n.index < 0 {
		return
	}
	last := c.list[len(c.list)-1]
	c.list[n.index], last.index = last, n.index
	c.list[len(c.list)-1] = nil
	c.list = c.list[:len(c.list)-1]
	n.index = -1
}

// dropIfUnused removes a node that neither exists nor has pods.
func (c *Cluster) dropIfUnused(n *Node) {
	if n.Node == nil && len(n.Pods) == 0 && len(n.Nominated) == 0 {
		delete(c.nodes, n.Name)
	}
}

// EffectiveTaints returns a node's taints, including not-ready if the node is not ready and does not have the taint
// yet.
func EffectiveTaints(n *corev1.Node) []corev1.Taint {
	has := func(key string) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	if podstate.NodeReady(n) || has(corev1.TaintNodeNotReady) || has(corev1.TaintNodeUnreachable) {
		return n.Spec.Taints
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	return append(slices.Clone(n.Spec.Taints), notReady)
}

// Add places a pod on a node, which may be added later.
func (c *Cluster) Add(p *Pod, node string) {
	c.Generation++
	p.Node = node
	n := c.state(node)
	c.pods[p.UID], n.Pods[p.UID] = p, p
	n.Requested.add(&p.Requests, 1)
	n.NonZeroRequested.add(&p.NonZeroRequests, 1)
	if len(p.Ports) > 0 {
		n.usedHostPorts++
	}
	for _, key := range p.Claims {
		c.claims[key]++
	}
	c.Storage.choose(p, 1)
	c.updateCounts(p, 1)
}

// Remove removes a placed pod and returns it, or nil if it was not placed.
func (c *Cluster) Remove(uid types.UID) *Pod {
	p := c.pods[uid]
	if p == nil {
		return nil
	}
	c.Generation++
	n := c.nodes[p.Node]
	delete(c.pods, uid)
	delete(n.Pods, uid)
	n.Requested.add(&p.Requests, -1)
	n.NonZeroRequested.add(&p.NonZeroRequests, -1)
	if len(p.Ports) > 0 {
		n.usedHostPorts--
	}
	for _, key := range p.Claims {
		bump(c.claims, key, -1)
	}
	c.Storage.choose(p, -1)
	c.updateCounts(p, -1)
	c.dropIfUnused(n)
	return p
}

// Nominate records the node that a pod is nominated for; empty: none.
func (c *Cluster) Nominate(p *Pod, node string) {
	if old := c.nominated[p.UID]; old != nil {
		n := c.nodes[old.Node]
		delete(n.Nominated, p.UID)
		delete(c.nominated, p.UID)
		c.dropIfUnused(n)
	}
	if node == "" {
		return
	}
	nominated := *p
	nominated.Node = node
	n := c.state(node)
	if n.Nominated == nil {
		n.Nominated = map[types.UID]*Pod{}
	}
	n.Nominated[p.UID], c.nominated[p.UID] = &nominated, &nominated
}

// NominatedNode returns the node that a pod is nominated for, or "".
func (c *Cluster) NominatedNode(uid types.UID) string {
	if p := c.nominated[uid]; p != nil {
		return p.Node
	}
	return ""
}
