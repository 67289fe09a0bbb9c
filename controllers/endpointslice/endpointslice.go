// Package endpointslice maintains the EndpointSlices of Services with selectors.
//
//   - build.go: the endpoints of a Service's pods, by address type and ports.
//   - nodes.go: the zones of nodes, and the Services with pods on nodes that do not exist.
//   - topology.go: hints for the annotation service.kubernetes.io/topology-mode.
//
// Package servicestate finds the pods that a Service selects; package sliceset distributes endpoints over slices.
package endpointslice

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/servicestate"
	"monopod/controllers/sliceset"
)

// Name of the controller.
const Name = "endpointslice"

// Component is the source of its events.
const Component = "endpoint-slice-controller"

// managedBy is upstream's value of the label endpointslice.kubernetes.io/managed-by.
const managedBy = "endpointslice-controller.k8s.io"

// Config of the controller.
type Config struct {
	Workers     int           // --concurrent-service-endpoint-syncs; 0 means upstream's 5
	Max         int           // --max-endpoints-per-slice; 0 means upstream's 100
	BatchPeriod time.Duration // --endpointslice-updates-batch-period
}

// Controller maintains EndpointSlices.
type Controller struct {
	deps    follow.Deps
	events  record.Eventer
	cfg     Config
	metrics *metrics
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers, cfg.Max = cmp.Or(cfg.Workers, 5), cmp.Or(cfg.Max, 100)
	m, err := newMetrics(deps.Metrics.Registerer)
	return &Controller{deps: deps, events: events, cfg: cfg, metrics: m}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.reset()
	r := &run{
		Controller: c, state: servicestate.NewIndex(), triggers: servicestate.NewTriggers(),
		slices: sliceset.NewIndex(managedBy), nodes: newNodes(), topology: newTopology(),
	}
	r.writer = sliceset.Writer{Client: c.deps.Client, Index: r.slices, Changed: c.metrics.Changed}
	r.loop = follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(r.state.OnService)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(r.onPod)},
			{Selector: client.Selector{Resource: client.Nodes}, Keys: follow.Plain(r.onNode)},
			{Selector: client.Selector{Resource: client.EndpointSlices}, Keys: follow.Plain(r.slices.OnSlice)},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop     *follow.Loop[follow.Key]
	state    *servicestate.Index
	triggers *servicestate.Triggers
	slices   *sliceset.Index
	writer   sliceset.Writer
	nodes    *nodes
	topology *topology
}

func (r *run) onPod(old, new client.Object) []follow.Key {
	keys := r.state.OnPod(old, new)
	if r.cfg.BatchPeriod > 0 {
		r.loop.AddAfter(r.cfg.BatchPeriod, keys...)
		return nil
	}
	return keys
}

// onNode wakes the Services that a change of a node affects: those whose pods waited for the node, all when its zone
// changes, and those whose hints no longer match the CPUs of the zones.
func (r *run) onNode(old, new client.Object) []follow.Key {
	waited, moved, changed := r.nodes.set(old, new)
	if moved {
		waited = r.state.Services()
	}
	if changed {
		waited = append(waited, r.topology.set(r.nodes.all())...)
	}
	return waited
}

// reconcile updates the slices of one Service.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	s, err := client.Get[*corev1.Service](ctx, r.deps.Client, key.Namespace, key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	if err != nil || !servicestate.Selects(s) {
		r.forget(key) // the garbage collector deletes the slices; users maintain those of Services without a selector
		return 0, nil
	}
	again, err := r.sync(ctx, key, s)
	r.metrics.synced(err)
	if err != nil && ctx.Err() == nil {
		r.events.Eventf(s, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s/%s: %v", s.Namespace, s.Name, err)
	}
	return again, err
}

func (r *run) forget(key follow.Key) {
	r.triggers.Forget(key)
	r.topology.forget(key)
	r.nodes.forget(key)
	r.metrics.forget(key)
}

// sync plans and writes the slices of a Service. again is the time until it must be reconciled again.
func (r *run) sync(ctx context.Context, key follow.Key, s *corev1.Service) (again time.Duration, err error) {
	existing, err := r.writer.Existing(ctx, key)
	if err != nil {
		return 0, err
	}
	pods := r.state.Pods(s)
	at := r.triggers.Next(s, pods)
	owner := sliceset.Owner{
		Object: s, Kind: corev1.SchemeGroupVersion.WithKind("Service"),
		Labels: sliceset.Labels(s.Labels, s.Name, managedBy, servicestate.Headless(s)),
	}
	zones, missing := r.nodes.zones(key, pods, s.Spec.PublishNotReadyAddresses)
	groups := build(s, pods, zones, missing)
	auto := topologyAuto(s)
	plan := sliceset.Make(owner, existing, groups, sliceset.Options{Max: r.cfg.Max, KeepHints: auto})
	for _, e := range r.topology.hint(key, s, &plan, auto) {
		r.events.Eventf(s, e.typ, e.reason, "%s", e.message)
	}
	r.metrics.planned(key, s, plan, groups, r.cfg.Max)
	return r.writer.Apply(ctx, key, owner, plan, at)
}

// addressType returns the address type of slices with addresses of a family.
func addressType(family corev1.IPFamily) discoveryv1.AddressType {
	if family == corev1.IPv6Protocol {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}
