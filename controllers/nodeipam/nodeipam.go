// Package nodeipam gives each Node that has no ranges of pods' addresses one range of each IP family, which overlaps
// neither those of other Nodes nor those of Services. A Node that sets its own ranges has the annotation
// podcidr.Annotation: it is given none, and its ranges are reserved.
//
//   - ranges.go: chooses ranges
package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/podcidr"
	"monopod/apiserver/kit/record"
)

// The name and the source of Events are upstream's.
const (
	Name      = "node-ipam-controller"
	Component = "cidrAllocator"
)

// Config of the controller.
type Config struct {
	// Off disables the controller: Nodes are not given ranges.
	Off bool
	// Clusters are the ranges from which Nodes get theirs, one or two of different IP families. Empty: one for each
	// family of Services; see Defaults.
	Clusters []netip.Prefix
	// Bits4 and Bits6 are the lengths of the ranges of a Node. 0: 24 and 64.
	Bits4, Bits6 int
	Services     []netip.Prefix // the configured ranges of Services
}

// Controller is the node IPAM controller.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	if cfg.Bits4 == 0 {
		cfg.Bits4 = defaultBits4
	}
	if cfg.Bits6 == 0 {
		cfg.Bits6 = defaultBits6
	}
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	if c.cfg.Off {
		<-ctx.Done()
		return nil
	}
	r := &run{Controller: c, nodes: map[string]*corev1.Node{}, given: map[string][]netip.Prefix{},
		waiting: map[string]struct{}{}}
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(r.onNode)},
		},
		Reconcile: r.reconcile, // one worker: no range is given twice
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller

	mu      sync.Mutex // guards what follows
	nodes   map[string]*corev1.Node
	given   map[string][]netip.Prefix // ranges of Nodes whose change is not in nodes yet
	waiting map[string]struct{}       // Nodes for which no range was free
}

// needsRanges reports whether the controller gives a Node its ranges.
func needsRanges(node *corev1.Node) bool {
	return len(node.Spec.PodCIDRs) == 0 && node.Annotations[podcidr.Annotation] != podcidr.Self &&
		node.DeletionTimestamp == nil
}

// onNode wakes a Node that needs ranges now, and after the deletion of a Node those that wait for one.
func (r *run) onNode(old, next client.Object) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next == nil {
		name := old.GetName()
		delete(r.nodes, name)
		delete(r.given, name)
		delete(r.waiting, name)
		return slices.Collect(maps.Keys(r.waiting))
	}
	node := next.(*corev1.Node)
	r.nodes[node.Name] = node
	if len(node.Spec.PodCIDRs) > 0 {
		delete(r.given, node.Name)
	}
	if !needsRanges(node) {
		delete(r.waiting, node.Name)
		return nil
	}
	if old != nil && needsRanges(old.(*corev1.Node)) {
		return nil
	}
	return []string{node.Name}
}

func (r *run) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, err := client.Get[*corev1.Node](ctx, r.deps.Client, "", name)
	if apierrors.IsNotFound(err) || err == nil && !needsRanges(node) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	services, err := r.services(ctx)
	if err != nil {
		return 0, err
	}
	ranges, err := r.choose(name, services)
	if full := (fullError{}); errors.As(err, &full) {
		r.events.Eventf(node, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", name)
		r.deps.Log.Warn(fmt.Sprintf("%v; delete Nodes that are gone, or choose another --cluster-cidr", err))
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, err = client.Update(ctx, r.deps.Client, node, "", func(cur *corev1.Node) error {
		if !needsRanges(cur) {
			return nil
		}
		cur.Spec.PodCIDRs = nil
		for _, p := range ranges {
			cur.Spec.PodCIDRs = append(cur.Spec.PodCIDRs, p.String())
		}
		cur.Spec.PodCIDR = cur.Spec.PodCIDRs[0]
		return nil
	})
	if err == nil {
		return 0, nil
	}
	// The write may have succeeded nevertheless: the ranges stay reserved until the Node has some or is deleted.
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, fmt.Errorf("set podCIDRs of node %s: %w", name, err)
}

// services returns the ranges of Services, those of all ServiceCIDRs included.
func (r *run) services(ctx context.Context) ([]netip.Prefix, error) {
	out := slices.Clone(r.cfg.Services)
	objs, _, err := r.deps.Client.List(ctx, client.Selector{Resource: client.ServiceCIDRs})
	if err != nil {
		return nil, fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for _, obj := range objs {
		for _, text := range obj.(*networkingv1.ServiceCIDR).Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// choose returns free ranges for a Node and reserves them. It fails with a fullError if there are none, and then wakes
// the Node after the deletion of another.
func (r *run) choose(name string, services []netip.Prefix) ([]netip.Prefix, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clusters := r.cfg.Clusters
	if len(clusters) == 0 {
		clusters = Defaults(slices.Collect(maps.Values(r.nodes)), r.cfg.Services)
	}
	taken := slices.Clone(services)
	for other, node := range r.nodes {
		if other != name {
			taken = slices.Concat(taken, podcidr.Of(node), r.given[other])
		}
	}
	var out []netip.Prefix
	for _, cluster := range clusters {
		bits := r.cfg.Bits4
		if cluster.Addr().Is6() {
			bits = r.cfg.Bits6
		}
		p, ok := free(name, cluster, bits, taken)
		if !ok {
			r.waiting[name] = struct{}{}
			return nil, fullError{cluster, bits}
		}
		out = append(out, p)
	}
	delete(r.waiting, name)
	r.given[name] = out
	return out, nil
}

// fullError says that a range of the cluster has no free range for a Node.
type fullError struct {
	cluster netip.Prefix
	bits    int
}

// Error implements error.
func (e fullError) Error() string {
	return fmt.Sprintf("no range /%d of %s is free for a Node", e.bits, e.cluster)
}
