// Package nodelifecycle detects nodes that stop reporting, and sets taints according to the conditions of nodes.
//
// A node reports by renewing its Lease or its status. If neither has changed for the grace period, measured with a
// monotonic clock, the controller sets the node's conditions to Unknown and its pods to not ready. NoSchedule taints
// follow the conditions at once. NoExecute taints, because of which tainteviction deletes pods, follow the Ready
// condition at a limited rate, and not while no node is ready: the pods of a single node stay.
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
	"monopod/controllers/podstate"
)

// Name of the controller.
const Name = "nodelifecycle"

// Component is the source of its events.
const Component = "node-controller"

// parallel is the number of pods that are updated concurrently.
const parallel = 10

// Config of the controller.
type Config struct {
	GracePeriod time.Duration // --node-monitor-grace-period; 0 means upstream's 50 s
	Rates       Rates
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
	r := &run{Controller: c, heartbeats: map[string]heartbeat{}, zones: map[string]*zone{}}
	return follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(onNode)},
			{Selector: client.Selector{Resource: client.Leases, Namespace: corev1.NamespaceNodeLease},
				Keys: follow.Plain(r.onLease)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// heartbeat is the last heartbeat of a node.
type heartbeat struct {
	renewed metav1.MicroTime // from the Lease
	posted  metav1.Time      // from the Ready condition
	at      time.Time        // when this process observed it
	uid     types.UID        // of the node
	silent  bool             // for longer than the grace period
	lost    bool             // silent, and its pods are set to not ready
}

type run struct {
	*Controller

	zones     map[string]*zone // written by evictions
	noneReady bool             // no node was ready at the last evictions

	mu         sync.Mutex // guards heartbeats
	heartbeats map[string]heartbeat
}

// evictionsKey is the key of the evictions; the other keys are names of nodes.
const evictionsKey = ""

// onNode wakes a node unless only heartbeat times have changed, and the evictions if the change affects them.
func onNode(old, new client.Object) []string {
	if new == nil {
		return []string{old.GetName(), evictionsKey}
	}
	is := new.(*corev1.Node)
	if old == nil {
		return []string{is.Name, evictionsKey}
	}
	was := old.(*corev1.Node)
	ready := podstate.ReadyStatus(was) != podstate.ReadyStatus(is)
	tainted := !equality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints)
	var keys []string
	if ready || tainted || !slices.Equal(requiredTaints(was), requiredTaints(is)) {
		keys = append(keys, is.Name)
	}
	if ready || tainted || zoneOf(was) != zoneOf(is) || excluded(was) != excluded(is) {
		keys = append(keys, evictionsKey)
	}
	return keys
}

// onLease records when a node renewed its Lease, and wakes a node that was not reporting. Other nodes are checked when
// their grace period may have ended.
func (r *run) onLease(_, new client.Object) []string {
	if new == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.heartbeats[new.GetName()]
	if at := new.(*coordinationv1.Lease).Spec.RenewTime; known && at != nil && !at.Equal(&last.renewed) {
		last.renewed, last.at, last.lost = *at, r.deps.Clock.Now(), false
		r.heartbeats[new.GetName()] = last
	}
	if last.silent {
		return []string{new.GetName()}
	}
	return nil
}

// reconcile checks one node. It returns the time until its grace period may end.
func (r *run) reconcile(ctx context.Context, name string) (time.Duration, error) {
	if name == evictionsKey {
		return r.evictions(ctx)
	}
	node, err := client.Get[*corev1.Node](ctx, r.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		last, known := r.heartbeats[name]
		delete(r.heartbeats, name)
		r.mu.Unlock()
		if known {
			node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: last.uid}}
			r.recordEvent(node, "RemovingNode", "Removing Node %s from Controller")
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	left, err := r.graceLeft(ctx, node)
	if err != nil {
		return 0, err
	}
	if left > 0 {
		return left, r.taint(ctx, node)
	}
	if podstate.ReadyStatus(node) != corev1.ConditionUnknown {
		if err := r.setUnknown(ctx, node); err != nil {
			return 0, err
		}
		r.events.Eventf(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", name)
		return 0, nil // the change wakes the node again for the taints
	}
	return 0, errors.Join(r.taint(ctx, node), r.podsNotReady(ctx, name))
}

// recordEvent records an Event with upstream's text.
func (r *run) recordEvent(node *corev1.Node, reason, what string) {
	r.events.Eventf(node, corev1.EventTypeNormal, reason, "Node %s event: "+what, node.Name, node.Name)
}

// graceLeft returns the rest of the node's grace period.
func (r *run) graceLeft(ctx context.Context, node *corev1.Node) (time.Duration, error) {
	now := heartbeat{at: r.deps.Clock.Now(), uid: node.UID}
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
	last, known := r.heartbeats[node.Name]
	if !known {
		defer r.recordEvent(node, "RegisteredNode", "Registered Node %s in Controller")
	}
	if known && last.renewed.Equal(&now.renewed) && last.posted.Equal(&now.posted) {
		now.at, now.lost = last.at, last.lost
	}
	left := r.cfg.GracePeriod - r.deps.Clock.Since(now.at)
	now.silent = left <= 0
	r.heartbeats[node.Name] = now
	return left, nil
}

// setUnknown sets the conditions that the node reports to Unknown.
func (r *run) setUnknown(ctx context.Context, node *corev1.Node) error {
	now := metav1.NewTime(r.deps.Clock.Now())
	_, err := client.Update(ctx, r.deps.Client, node, "status", func(n *corev1.Node) error {
		types := []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
			corev1.NodePIDPressure}
		for _, t := range types {
			i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
			if i < 0 {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
					Type: t, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
					Message: "Kubelet never posted node status.", LastHeartbeatTime: n.CreationTimestamp, LastTransitionTime: now,
				})
			} else if c := &n.Status.Conditions[i]; c.Status != corev1.ConditionUnknown {
				c.Status, c.Reason, c.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", now
				c.Message = "Kubelet stopped posting node status."
			}
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// podsNotReady sets the pods of a node that stopped reporting to not ready, once. The reason and the message of their
// Ready condition stay, as in upstream.
func (r *run) podsNotReady(ctx context.Context, node string) error {
	r.mu.Lock()
	done := r.heartbeats[node].lost
	r.mu.Unlock()
	if done {
		return nil
	}
	pods, err := client.List[*corev1.Pod](ctx, r.deps.Client,
		client.Selector{Fields: fields.OneTermEqualSelector("spec.nodeName", node)})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !podstate.Ready(p) })
	errs := follow.Each(parallel, pods, func(pod *corev1.Pod) error {
		_, err := client.Update(ctx, r.deps.Client, pod, "status", func(p *corev1.Pod) error {
			p.UID = pod.UID
			if ready := podstate.Condition(p, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue {
				ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(r.deps.Clock.Now())
			}
			return nil
		})
		if owned.Gone(err) {
			return nil
		}
		if err == nil {
			r.events.Eventf(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		return err
	})
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.heartbeats[node]
	last.lost = true
	r.heartbeats[node] = last
	return nil
}

var errUnchanged = errors.New("taints are up to date")

// taint sets the node's taints according to its conditions.
func (r *run) taint(ctx context.Context, node *corev1.Node) error {
	if _, changed := taintsFor(node, metav1.Time{}); !changed {
		return nil
	}
	now := metav1.NewTime(r.deps.Clock.Now())
	_, err := client.Update(ctx, r.deps.Client, node, "", func(n *corev1.Node) error {
		taints, changed := taintsFor(n, now)
		if !changed {
			return errUnchanged
		}
		n.Spec.Taints = taints
		return nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}
