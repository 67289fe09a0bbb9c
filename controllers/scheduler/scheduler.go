// Package scheduler binds pods to nodes: to the node that fits best of those on which they fit. If there is none, it
// removes pods of a lower priority that are in the way.
//
//   - cluster: every node and the pods on it, including bindings in progress.
//   - rules: why a pod cannot run on a node, and which of the fitting nodes is best; upstream's plugins.
//   - preemption: which pods must go so that one fits.
//   - queue: the pods without a node, by urgency, and what those wait for that fit nowhere.
//
// Decisions are made one at a time, bindings are written concurrently.
//
//   - preemption.go: decides which pods of a lower priority must go so that a pod fits on a node: as few as possible,
//     and those that matter least
//   - queue.go: holds the pods without a node
package scheduler

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// Name of the controller.
const Name = "scheduler"

// Component is the source of its events and its name in spec.schedulerName.
const Component = corev1.DefaultSchedulerName

// Config of the controller.
type Config struct {
	Workers int // concurrent decisions and writes, of a batch of pods each; 0 means 4
}

// Controller binds pods to nodes.
type Controller struct {
	deps    follow.Deps
	events  record.Eventer
	cfg     Config
	metrics *metrics
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 4)
	m, err := newMetrics(deps.Metrics)
	return &Controller{deps: deps, events: events, cfg: cfg, metrics: m}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	chooser := &rules.Chooser{Rules: rules.All()}
	r := &run{Controller: c, cluster: cluster.New(), queue: newQueue(), chooser: chooser,
		finder: &Finder{Chooser: chooser}, budgets: map[follow.Key]*policyv1.PodDisruptionBudget{},
		reserved: map[follow.Key]*reservation{}}
	source := func(resource client.Selector, keys func(old, new client.Object) []follow.Key) follow.Source[follow.Key] {
		return follow.Source[follow.Key]{Selector: resource, Keys: follow.Plain(func(old, new client.Object) []follow.Key {
			r.mu.Lock()
			defer r.mu.Unlock()
			return keys(old, new)
		})}
	}
	r.loop = follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			source(client.Selector{Resource: client.Namespaces}, r.onNamespace),
			source(client.Selector{Resource: client.Nodes}, r.onNode),
			source(client.Selector{Resource: client.Pods}, r.onPod),
			source(client.Selector{Resource: client.PersistentVolumeClaims}, r.onStorage),
			source(client.Selector{Resource: client.PersistentVolumes}, r.onStorage),
			source(client.Selector{Resource: client.StorageClasses}, r.onStorage),
			source(client.Selector{Resource: client.CSINodes}, r.onStorage),
			source(client.Selector{Resource: client.ResourceClaims}, r.onDevices),
			source(client.Selector{Resource: client.ResourceSlices}, r.onDevices),
			source(client.Selector{Resource: client.DeviceClasses}, r.onDevices),
			source(client.Selector{Resource: client.DeviceTaintRules}, r.onDevices),
			source(client.Selector{Resource: client.PodDisruptionBudgets}, r.onBudget),
			source(client.Selector{Resource: client.Services}, r.onService),
		},
		Reconcile: r.reconcile,
	})
	c.metrics.observe(r)
	defer c.metrics.observe(nil)
	return r.loop.Run(ctx)
}

// run is one Run of the controller, with its state.
type run struct {
	*Controller
	loop *follow.Loop[follow.Key]

	// mu guards the fields below. It is held for a whole decision, so that a change of the cluster is either seen
	// by the decision or wakes the pod after it.
	mu       sync.Mutex
	cluster  *cluster.Cluster
	queue    *Queue
	chooser  *rules.Chooser
	finder   *Finder
	budgets  map[follow.Key]*policyv1.PodDisruptionBudget
	reserved map[follow.Key]*reservation // pods with a node that wait for their claims
}

// wanted reports whether this scheduler schedules the pod.
func wanted(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !podstate.Finished(p) &&
		(p.Spec.SchedulerName == "" || p.Spec.SchedulerName == Component)
}

// batch is how many pods a worker tries before it carries out what was decided, so that a few workers are enough to
// write many bindings at a time.
const batch = 32

// reconcile tries the most urgent pods. Every pod that becomes active adds its key, so there is a call if there is a
// pod to try; it need not be that of the key. Only a pod that has a node and waits for its claims is that of its key.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	if place := r.reservation(key); place != nil {
		return r.await(ctx, place)
	}
	if d := r.gated(key); d != nil {
		if _, err := r.condition(ctx, d, corev1.PodReasonSchedulingGated, nil); err != nil {
			return 0, err
		}
	}
	var all []*decision
	for len(all) < batch {
		d := r.decide(key)
		if d == nil {
			break
		}
		all = append(all, d)
	}
	if len(all) == 1 {
		r.act(ctx, all[0])
	} else {
		follow.Each(batch, all, func(d *decision) error { r.act(ctx, d); return nil })
	}
	return r.next(key, all), nil
}

// decision is what is to be done with a pod.
type decision struct {
	entry     *Entry
	pod       *cluster.Pod
	began     time.Time
	node      string                    // empty: none
	devices   []rules.Reservation       // its resource claims are written first
	place     *reservation              // its claims are bound first
	message   string                    // why it has no node
	candidate *Candidate                // the pods that must go
	unnamed   []*corev1.Pod             // pods that are no longer nominated for the node
	keep      bool                      // what the pod is nominated for stays
	idle      *resourcev1.ResourceClaim // its devices are given back
	quiet     bool                      // no event: it is tried again in a moment
}

// gated returns what is said about the pod of a key that its gates keep from being tried; nil: they do not.
func (r *run) gated(key follow.Key) *decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.queue.Get(key); e != nil && e.State == Gated {
		return &decision{entry: e, pod: e.Pod, message: "Scheduling is blocked due to non-empty scheduling gates"}
	}
	return nil
}

// decide chooses a node for the most urgent pod, and assumes it there; nil: no pod is to be tried.
func (r *run) decide(key follow.Key) *decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	r.cluster.Devices.Now = now
	r.queue.Due(key, now)
	e := r.queue.Pop()
	if e == nil {
		return nil
	}
	d := &decision{entry: e, pod: e.Pod, began: now}
	c := rules.NewCycle(r.cluster, e.Pod)
	out := r.chooser.Choose(c)
	if out.Node == nil {
		r.refuse(d, c, &out)
		return d
	}
	d.node = out.Node.Name
	d.devices = c.Reservations(out.Node)
	r.pend(d.devices)
	d.pod.Assumed = true
	r.cluster.Add(d.pod, d.node)
	r.nominate(d.pod, "")
	if claims, waits := c.Conditional(d.devices); len(c.Open()) > 0 || waits {
		d.place = &reservation{entry: e, pod: d.pod, node: d.node, since: now, devices: waits, claims: claims}
		r.reserved[e.Key] = d.place
		assigned, _ := c.Assign(out.Node)
		r.cluster.Choose(d.pod, chosen(d.pod, assigned))
	}
	return d
}

// refuse makes a pod wait that no node fits, and looks for pods that can make room for it.
func (r *run) refuse(d *decision, c *rules.Cycle, out *rules.Outcome) {
	d.message, d.quiet = out.Message(), c.Uncreated()
	if d.idle = r.chooser.Idle(c, out); d.idle != nil {
		d.message += " deallocation of ResourceClaim completed"
	} else if out.Nodes > 0 {
		why := Ineligible(c, out)
		if d.keep = why != ""; !d.keep {
			d.candidate, why = r.finder.Find(c, out, r.allBudgets())
			r.metrics.preemptions.Inc()
		}
		if d.candidate == nil {
			d.message += " preemption: " + why
		}
	}
	switch {
	case d.candidate != nil:
		d.unnamed = r.outrank(d.pod, d.candidate.Node)
		r.nominate(d.pod, d.candidate.Name)
	case !d.keep:
		r.nominate(d.pod, "")
	}
	r.queue.Refused(d.entry, out.Rejected, r.deps.Clock.Now())
}

// outrank returns the pods of a lower priority that were nominated for a node, and no longer are.
func (r *run) outrank(p *cluster.Pod, n *cluster.Node) (pods []*corev1.Pod) {
	for _, other := range n.Nominated {
		if other.Priority < p.Priority {
			pods = append(pods, other.Pod)
			r.nominate(other, "")
		}
	}
	return pods
}

// nominate changes the node that a pod is nominated for. Pods that the nomination has kept from the node are woken.
// The caller holds mu.
func (r *run) nominate(p *cluster.Pod, node string) {
	old := r.cluster.NominatedNode(p.UID)
	if old == node {
		return
	}
	r.cluster.Nominate(p, node)
	if n := r.cluster.Node(old); n != nil {
		r.loop.Add(r.changed(cluster.Change{What: cluster.PodGone, Node: n, Pod: p})...)
	}
}

// act carries out a decision.
func (r *run) act(ctx context.Context, d *decision) {
	err := r.reserve(ctx, d.pod.Pod, d.devices)
	switch {
	case err != nil:
	case d.place != nil && d.place.devices:
		r.prepares(d)
		err = r.settle(ctx, d.place)
	case d.place != nil:
		err = r.settle(ctx, d.place)
	case d.node != "":
		err = r.bind(ctx, d.entry, d.pod, d.node, d.began)
	default:
		err = r.refused(ctx, d)
	}
	if err != nil {
		r.failed(ctx, d.entry, d.pod, err)
	}
}

// next makes sure that there is a call for the next pod, and that the pods that wait are tried when it is time.
func (r *run) next(key follow.Key, tried []*decision) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.deps.Clock.Now()
	if top := r.queue.Top(); top != nil {
		r.loop.Add(top.Key)
	}
	for _, d := range tried {
		if after := r.queue.After(d.entry.Key, now); after > 0 && d.entry.Key != key {
			r.loop.AddAfter(after, d.entry.Key)
		}
	}
	return r.queue.After(key, now)
}

func (r *run) allBudgets() []*policyv1.PodDisruptionBudget {
	all := make([]*policyv1.PodDisruptionBudget, 0, len(r.budgets))
	for _, b := range r.budgets {
		all = append(all, b)
	}
	return all
}
