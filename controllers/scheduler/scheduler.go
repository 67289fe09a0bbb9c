// Package scheduler binds each pod to the best of the nodes on which it fits. If there is none, it preempts pods of a
// lower priority.
//
//   - cluster: the cache of nodes and their pods, including assumed ones.
//   - rules: upstream's plugins, which filter and score nodes.
//   - scheduler.go: one decision after the other; their writes are concurrent.
//   - queue.go: the pods without a node, and the changes for which unschedulable pods wait.
//   - preemption.go: the pods of a lower priority that must be removed so that a pod fits: as few and as unimportant as
//     possible.
//   - bind.go, devices.go: bind pods, volumes and devices.
//   - refuse.go: reports unschedulable pods, and deletes victims.
package scheduler

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/podstate"
	"monopod/controllers/scheduler/cluster"
	"monopod/controllers/scheduler/rules"
)

// Name of the controller.
const Name = "scheduler"

// Component is the source of the Events, and the scheduler's name in spec.schedulerName.
const Component = corev1.DefaultSchedulerName

// Config of the controller.
type Config struct {
	Workers int // concurrent batches; 0 means 4
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
	optional := func(resource client.Selector) follow.Source[follow.Key] {
		src := source(resource, r.onStorage)
		src.Optional = true
		return src
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
			optional(client.Selector{Resource: client.CSIDrivers}),
			optional(client.Selector{Resource: client.CSIStorageCapacities}),
			optional(client.Selector{Resource: client.VolumeAttachments}),
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

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop *follow.Loop[follow.Key]

	// mu guards the fields below. It is held for a whole decision: a change of the cluster either affects the decision or
	// wakes the pod after it.
	mu       sync.Mutex
	cluster  *cluster.Cluster
	queue    *Queue
	chooser  *rules.Chooser
	finder   *Finder
	budgets  map[follow.Key]*policyv1.PodDisruptionBudget
	reserved map[follow.Key]*reservation // placed pods that wait for their claims or devices
}

// wanted reports whether this scheduler schedules the pod.
func wanted(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !podstate.Finished(p) &&
		(p.Spec.SchedulerName == "" || p.Spec.SchedulerName == Component)
}

// batch is the maximum number of pods that a worker decides about before it writes the decisions, so that a few workers
// write many bindings concurrently.
const batch = 32

// reconcile tries the most urgent pods. Every pod that becomes active adds its key, so there are enough calls; the pods
// need not be those of the key. Only for a reservation it handles the pod of the key.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	if place := r.reservation(key); place != nil {
		return r.await(ctx, place)
	}
	r.mu.Lock()
	var gated *decision
	if e := r.queue.Get(key); e != nil && e.State == Gated {
		gated = &decision{entry: e, pod: e.Pod, message: "Scheduling is blocked due to non-empty scheduling gates"}
	}
	r.mu.Unlock()
	if gated != nil {
		if _, err := r.condition(ctx, gated, corev1.PodReasonSchedulingGated, nil); err != nil {
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

// decision is the result of an attempt to schedule a pod.
type decision struct {
	entry          *Entry
	pod            *cluster.Pod
	began          time.Time
	node           string                    // empty: no node fits
	devices        []rules.Reservation       // to write before the binding
	place          *reservation              // set if the pod waits for claims or devices before its binding
	message        string                    // why no node fits
	candidate      *Candidate                // node and pods to preempt
	unnominated    []*corev1.Pod             // pods that lose their nomination for the node
	keepNomination bool                      // the pod keeps its nomination
	deallocate     *resourcev1.ResourceClaim // claim to deallocate
	quiet          bool                      // no Event, because the pod is retried soon
}

// decide chooses a node for the most urgent pod, and assumes the pod there. It returns nil if there is no pod to try.
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
	for _, res := range d.devices { // they stay reserved until the allocations are written
		if res.Allocation != nil {
			r.cluster.AssumeAllocation(res.UID, res.Allocation)
		}
	}
	d.pod.Assumed = true
	r.cluster.Add(d.pod, d.node)
	r.nominate(d.pod, "")
	if claims, waits := c.Conditional(d.devices); len(c.Open()) > 0 || waits {
		d.place = &reservation{entry: e, pod: d.pod, node: d.node, since: now, devices: waits, claims: claims,
			selected: map[types.UID]bool{}}
		r.reserved[e.Key] = d.place
		assigned, _ := c.Assign(out.Node)
		r.cluster.Choose(d.pod, chosen(d.pod, assigned))
	}
	return d
}

// refuse makes an unschedulable pod wait, and looks for pods to preempt. Pods of a lower priority lose their nomination
// for the node of the victims.
func (r *run) refuse(d *decision, c *rules.Cycle, out *rules.Outcome) {
	d.message, d.quiet = out.Message(), c.AwaitsClaimCreation()
	if d.deallocate = r.chooser.Deallocatable(c, out); d.deallocate != nil {
		d.message += " deallocation of ResourceClaim completed"
	} else if out.Nodes > 0 {
		why := Ineligible(c, out)
		if d.keepNomination = why != ""; !d.keepNomination {
			d.candidate, why = r.finder.Find(c, out, slices.Collect(maps.Values(r.budgets)))
			r.metrics.preemptions.Inc()
		}
		if d.candidate == nil {
			d.message += " preemption: " + why
		}
	}
	switch {
	case d.candidate != nil:
		for _, other := range d.candidate.Nominated {
			if other.Priority < d.pod.Priority {
				d.unnominated = append(d.unnominated, other.Pod)
				r.nominate(other, "")
			}
		}
		r.nominate(d.pod, d.candidate.Name)
	case !d.keepNomination:
		r.nominate(d.pod, "")
	}
	r.queue.Refused(d.entry, out.Rejected, r.deps.Clock.Now())
}

// nominate changes the node that a pod is nominated for, and wakes the pods that did not fit because of the old
// nomination. The caller holds mu.
func (r *run) nominate(p *cluster.Pod, node string) {
	old := r.cluster.NominatedNode(p.UID)
	if old == node {
		return
	}
	r.cluster.Nominate(p, node)
	if n := r.cluster.Node(old); n != nil {
		r.loop.Add(r.changed(cluster.Change{ChangeKind: cluster.PodGone, Node: n, Pod: p})...)
	}
}

// act writes a decision.
func (r *run) act(ctx context.Context, d *decision) {
	err := r.reserve(ctx, d.pod.Pod, d.devices)
	switch {
	case err != nil:
	case d.place != nil && d.place.devices:
		r.awaitDevices(d)
		err = r.bindWhenReady(ctx, d.place)
	case d.place != nil:
		err = r.bindWhenReady(ctx, d.place)
	case d.node != "":
		err = r.bind(ctx, d.entry, d.pod, d.node, d.began)
	default:
		err = r.reportUnschedulable(ctx, d)
	}
	if err != nil {
		r.retryLater(ctx, d.entry, d.pod, err)
	}
}

// next wakes the worker for the next pod, and schedules the retries of waiting pods.
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
