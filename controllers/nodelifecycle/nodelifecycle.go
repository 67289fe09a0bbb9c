// Package nodelifecycle detects nodes that no longer report, and sets taints according to nodes' conditions.
//
// A node reports by renewing its Lease or its status. If neither has changed for the grace period, measured here
// with a monotonic clock, its conditions become Unknown. The taints are only NoSchedule: with one machine there
// is no other node for evicted pods.
package nodelifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/client/record"
	"monopod/apiserver/follow"
	"monopod/controllers/nodestate"
)

// Name of the controller.
const Name = "nodelifecycle"

// Component is the source of its events.
const Component = "node-controller"

// Config of the controller.
type Config struct {
	GracePeriod time.Duration // --node-monitor-grace-period, 0 means upstream's 50 s
}

// Controller watches nodes.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	cfg.GracePeriod = cmp.Or(cfg.GracePeriod, 50*time.Second)
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, heard: map[string]heard{}}
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(onNode)},
			{Selector: client.Selector{Resource: client.Leases, Namespace: corev1.NamespaceNodeLease}, Keys: follow.Plain(r.onLease)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// heard is the last heartbeat of a node.
type heard struct {
	renewed metav1.MicroTime // in the lease
	posted  metav1.Time      // in the Ready condition
	at      time.Time        // when it was first seen here
	silent  bool
}

type run struct {
	*Controller

	mu    sync.Mutex // guards heard
	heard map[string]heard
}

// onNode wakes a node unless only heartbeat times have changed.
func onNode(old, new client.Object) []string {
	if new == nil {
		return []string{old.GetName()}
	}
	if old != nil {
		was, is := old.(*corev1.Node), new.(*corev1.Node)
		if nodestate.ReadyStatus(was) == nodestate.ReadyStatus(is) && slices.Equal(called(was), called(is)) && equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) {
			return nil
		}
	}
	return []string{new.GetName()}
}

// onLease wakes a node that was not reporting; leases of other nodes are checked when their grace period could
// be over.
func (r *run) onLease(_, new client.Object) []string {
	if new == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heard[new.GetName()].silent {
		return []string{new.GetName()}
	}
	return nil
}

// reconcile checks one node, and again when its grace period could be over.
func (r *run) reconcile(ctx context.Context, name string) (time.Duration, error) {
	node, err := client.Get[*corev1.Node](ctx, r.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.heard, name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	left, err := r.patience(ctx, node)
	if err != nil {
		return 0, err
	}
	if left <= 0 && nodestate.ReadyStatus(node) != corev1.ConditionUnknown {
		if err := r.unknown(ctx, node); err != nil {
			return 0, err
		}
		r.events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", name)
		return 0, nil // the change wakes the node again for the taints
	}
	return max(left, 0), r.taint(ctx, node)
}

// patience returns the rest of the node's grace period.
func (r *run) patience(ctx context.Context, node *corev1.Node) (time.Duration, error) {
	now := heard{at: r.deps.Clock.Now()}
	lease, err := client.Get[*coordinationv1.Lease](ctx, r.deps.Client, corev1.NamespaceNodeLease, node.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if err == nil && lease.Spec.RenewTime != nil {
		now.renewed = *lease.Spec.RenewTime
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			now.posted = c.LastHeartbeatTime
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.heard[node.Name]
	if known && last.renewed.Equal(&now.renewed) && last.posted.Equal(&now.posted) {
		now.at = last.at
	}
	left := r.cfg.GracePeriod - r.deps.Clock.Since(now.at)
	now.silent = left <= 0
	r.heard[node.Name] = now
	return left, nil
}

// unknown sets the conditions that the node reports to Unknown.
func (r *run) unknown(ctx context.Context, node *corev1.Node) error {
	now := metav1.NewTime(r.deps.Clock.Now())
	_, err := client.Update(ctx, r.deps.Client, node, "status", func(n *corev1.Node) error {
		types := []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
		for _, t := range types {
			forgetCondition(n, t, now)
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func forgetCondition(n *corev1.Node, t corev1.NodeConditionType, now metav1.Time) {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
	if i < 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
			Message: "Kubelet never posted node status.", LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: now,
		})
		return
	}
	c := &n.Status.Conditions[i]
	if c.Status != corev1.ConditionUnknown {
		c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", now
		c.Message = "Kubelet stopped posting node status."
	}
}

var errAsItIs = errors.New("taints are right")

// taint sets the node's taints according to its conditions.
func (r *run) taint(ctx context.Context, node *corev1.Node) error {
	if _, changed := taintsFor(node, metav1.Time{}); !changed {
		return nil
	}
	now := metav1.NewTime(r.deps.Clock.Now())
	_, err := client.Update(ctx, r.deps.Client, node, "", func(n *corev1.Node) error {
		taints, changed := taintsFor(n, now)
		if !changed {
			return errAsItIs
		}
		n.Spec.Taints = taints
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, errAsItIs) {
		return nil
	}
	return err
}
