// Package nodes makes the pods of other nodes reachable. It follows Nodes, computes from them which packets take which
// way, and writes the difference to the kernel.
//
//   - plan.go: the pure part: what a Node says, the way between two nodes, the desired state
//   - kernel.go: routes and links
//   - wireguard.go, vxlan.go: the tunnels
//
// A node says on its Node which ways it accepts, and two nodes use the first of these that both accept: plain routes
// through the nodes' addresses (within a directly connected subnet), WireGuard, VXLAN. Both decide by the same facts,
// so that packets and replies take the same way, as strict reverse path filtering (rp_filter=1) requires.
//
// A node without other nodes has no link, key, route or annotation of this package, and follows only Nodes.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// Name of the controller.
const Name = "nodes"

// Mode says which ways a node accepts.
type Mode string

// The modes.
const (
	Auto          Mode = "auto"
	ModeRoutes    Mode = "routes"
	ModeWireGuard Mode = "wireguard"
	ModeVXLAN     Mode = "vxlan"
	None          Mode = "none"
	CNI           Mode = "cni" // the pods have a network of the administrator: Off holds
)

// Config of the Nodes. Node and Subnets are required.
type Config struct {
	Node    string
	Mode    Mode           // empty: Auto
	Subnets []netip.Prefix // ranges of this node's pods
	// Endpoint is where other nodes reach this node's WireGuard; zero: at its InternalIP and Port.
	Endpoint netip.AddrPort
	Port     uint16 // of WireGuard
	// Several is called, perhaps again and again, while there are other nodes; nil: it is not needed.
	Several func()
	// Off reports whether the pod network is not Monopod's own, so that nothing is done; nil: it always is.
	Off func() bool
}

// Machine is the part of the machine that the package changes.
type Machine interface {
	// Subnets returns those of the addresses that the machine has, with the lengths of their subnets.
	Subnets(of []netip.Addr) ([]netip.Prefix, error)
	// StartWireGuard creates the link unless it exists, and returns the public key. It fails with ErrUnsupported if the
	// kernel has no WireGuard.
	StartWireGuard() (wgtypes.Key, error)
	// StartVXLAN creates the link, whose packets have this source, and returns its link address. It fails with
	// ErrUnsupported if the kernel has no VXLAN.
	StartVXLAN(source netip.Addr) (mac string, err error)
	// Apply brings the kernel to the desired state. It removes the tunnels that the plan does not need, except those to
	// keep: other nodes may be about to use them.
	Apply(p Plan, keepWireGuard, keepVXLAN bool) error
	// Watch sends after changes of the machine's addresses and routes, until ctx ends.
	Watch(ctx context.Context) <-chan struct{}
}

// ErrUnsupported means that the kernel lacks a kind of link.
var ErrUnsupported = errors.New("not supported by the kernel")

// Nodes keeps the pods of other nodes reachable.
type Nodes struct {
	deps    follow.Deps
	cfg     Config
	machine Machine

	noWireGuard, noVXLAN bool      // the kernel does not support it
	unreachable          []string  // nodes
	since                time.Time // of unreachable; zero: the log already says so

	mu    sync.Mutex // guards what follows
	nodes map[string]*corev1.Node
}

var _ follow.Controller = (*Nodes)(nil)

// New returns a Nodes; Run starts it.
func New(deps follow.Deps, machine Machine, cfg Config) *Nodes {
	if cfg.Mode == "" {
		cfg.Mode = Auto
	}
	return &Nodes{deps: deps, cfg: cfg, machine: machine}
}

// Name implements follow.Controller.
func (n *Nodes) Name() string { return Name }

// settle is the time between a change of the machine's network and the check of the routes: the start of a pod changes
// the network many times.
const settle = time.Second

// only is the only key.
var only = []follow.Key{{}}

// Run implements follow.Controller. Routes and tunnels stay when it ends, because pods keep running.
func (n *Nodes) Run(ctx context.Context) error {
	n.nodes = map[string]*corev1.Node{}
	group, ctx := guard.With(ctx)
	several := make(chan struct{})
	begin := sync.OnceFunc(func() { close(several) })
	loop := follow.New(n.deps, follow.Config[follow.Key]{
		Name: Name, Start: only, MaxRetry: time.Minute,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(n.onNode)},
		},
		Reconcile: func(ctx context.Context, _ follow.Key) (time.Duration, error) { return n.reconcile(ctx, begin) },
	})
	group.Do(func() error { return loop.Run(ctx) })
	group.Do(func() error {
		select {
		case <-several:
		case <-ctx.Done():
			return nil
		}
		for range n.machine.Watch(ctx) { // a link that goes down and up again has lost its routes
			loop.AddAfter(settle, only...)
		}
		return nil
	})
	return group.Wait()
}

// onNode wakes the reconcile after changes that matter.
func (n *Nodes) onNode(old, next client.Object) []follow.Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	if next == nil {
		delete(n.nodes, old.GetName())
		return only
	}
	node := next.(*corev1.Node)
	n.nodes[node.Name] = node
	if old != nil && equal(factsOf(old.(*corev1.Node)), factsOf(node)) {
		return nil
	}
	return only
}

func equal(a, b facts) bool {
	return a.created == b.created && slices.Equal(a.ranges, b.ranges) && slices.Equal(a.ips, b.ips) &&
		slices.Equal(a.subnets, b.subnets) && a.key == b.key && a.endpoint == b.endpoint && a.mac == b.mac &&
		a.silent == b.silent
}

func (n *Nodes) reconcile(ctx context.Context, several func()) (time.Duration, error) {
	n.mu.Lock()
	node := n.nodes[n.cfg.Node]
	var others []facts
	for name, other := range n.nodes {
		if name != n.cfg.Node {
			others = append(others, factsOf(other))
		}
	}
	n.mu.Unlock()
	off := n.cfg.Off != nil && n.cfg.Off()
	if len(others) > 0 && !off && n.cfg.Several != nil {
		n.cfg.Several()
	}
	if off || n.cfg.Mode == None {
		others = nil // removes what an earlier process has set up
	}
	if len(others) > 0 {
		several()
	}
	if node == nil {
		return 0, nil // it registers
	}
	own, startErr := n.start(node, others)
	plan, unreachable := newPlan(own, others)
	err := n.machine.Apply(plan, own.key != (wgtypes.Key{}), own.mac != "")
	if err != nil {
		err = fmt.Errorf("set up routes to other nodes: %w", err)
	}
	return n.report(unreachable), errors.Join(startErr, err, n.publish(ctx, node, own))
}

// start starts the tunnels that the node must offer, and returns what it says about itself.
func (n *Nodes) start(node *corev1.Node, others []facts) (own facts, err error) {
	own = facts{name: n.cfg.Node, ranges: n.cfg.Subnets, ips: factsOf(node).ips}
	if len(others) == 0 {
		return own, nil
	}
	var errs []error
	if n.cfg.Mode == Auto || n.cfg.Mode == ModeRoutes {
		own.subnets, err = n.machine.Subnets(own.ips)
		errs = append(errs, err)
	}
	wireGuard, vxlan := tunnels(n.cfg.Mode, own, others, n.noWireGuard)
	if wireGuard {
		own.key, err = n.machine.StartWireGuard()
		own.endpoint = n.cfg.Endpoint
		if !own.endpoint.IsValid() && own.underlay().IsValid() {
			own.endpoint = netip.AddrPortFrom(own.underlay(), n.cfg.Port)
		}
		if errors.Is(err, ErrUnsupported) && n.cfg.Mode == Auto {
			n.deps.Log.Info("the kernel has no WireGuard: VXLAN, which does not encrypt, is used for nodes in other subnets")
			n.noWireGuard, err = true, nil
			_, vxlan = tunnels(n.cfg.Mode, own, others, true)
		}
		errs = append(errs, err)
	}
	if vxlan && own.underlay().IsValid() && !n.noVXLAN {
		own.mac, err = n.machine.StartVXLAN(own.underlay())
		n.noVXLAN = errors.Is(err, ErrUnsupported)
		errs = append(errs, err)
	}
	return own, errors.Join(errs...)
}

// unreachableAfter is the time that nodes have to find a common way, before the log says that there is none.
const unreachableAfter = 30 * time.Second

// report logs nodes whose pods cannot be reached for some time, once. It returns when to look again.
func (n *Nodes) report(unreachable []string) (again time.Duration) {
	slices.Sort(unreachable)
	if !slices.Equal(unreachable, n.unreachable) {
		n.unreachable, n.since = unreachable, n.deps.Clock.Now()
	}
	if len(unreachable) == 0 || n.since.IsZero() {
		return 0
	}
	if wait := unreachableAfter - n.deps.Clock.Since(n.since); wait > 0 {
		return wait
	}
	n.since = time.Time{}
	n.deps.Log.Warn("no way to the pods of some nodes: they are not in a directly connected subnet and offer no tunnel "+
		"that this node offers (--node-network), or their podCIDRs overlap those of other nodes",
		zap.String("nodes", strings.Join(unreachable, " ")))
	return 0
}

// publish writes the annotations of the node.
func (n *Nodes) publish(ctx context.Context, node *corev1.Node, own facts) error {
	if _, changed := changedAnnotations(node.Annotations, own.annotations()); !changed {
		return nil
	}
	_, err := client.Update(ctx, n.deps.Client, node, "", func(cur *corev1.Node) error {
		change, _ := changedAnnotations(cur.Annotations, own.annotations())
		for name, value := range maps.All(change) {
			if value == "" {
				delete(cur.Annotations, name)
			} else {
				metav1.SetMetaDataAnnotation(&cur.ObjectMeta, name, value)
			}
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotate node %s: %w", node.Name, err)
	}
	return nil
}
