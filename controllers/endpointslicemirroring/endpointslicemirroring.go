// Package endpointslicemirroring mirrors the Endpoints of Services without selectors, which users maintain, to
// EndpointSlices, so that all other components read only EndpointSlices.
package endpointslicemirroring

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/sliceset"
)

// Name of the controller.
const Name = "endpointslicemirroring"

// Component is the source of its events.
const Component = "endpoint-slice-mirroring-controller"

const (
	// managedBy is upstream's value of the label endpointslice.kubernetes.io/managed-by.
	managedBy = "endpointslicemirroring-controller.k8s.io"
	// subsystem is upstream's.
	subsystem = "endpoint_slice_mirroring_controller"
)

// Config of the controller.
type Config struct {
	Workers     int           // --mirroring-concurrent-service-endpoint-syncs; 0 means upstream's 5
	Max         int           // --mirroring-max-endpoints-per-subset; 0 means upstream's 1000
	BatchPeriod time.Duration // --mirroring-endpointslice-updates-batch-period
}

// Controller mirrors Endpoints.
type Controller struct {
	deps     follow.Deps
	events   record.Eventer
	cfg      Config
	metrics  *sliceset.Metrics
	updated  prometheus.Histogram
	skipped  prometheus.Histogram
	duration prometheus.Histogram
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller and registers its metrics.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers, cfg.Max = cmp.Or(cfg.Workers, 5), cmp.Or(cfg.Max, 1000)
	shared, err := sliceset.NewMetrics(deps.Metrics.Registerer, subsystem)
	c := &Controller{deps: deps, events: events, cfg: cfg, metrics: shared,
		updated: sliceset.Histogram(subsystem, "endpoints_updated_per_sync", "Number of endpoints updated on each sync."),
		skipped: sliceset.Histogram(subsystem, "addresses_skipped_per_sync",
			"Number of addresses skipped on each sync because they are invalid or exceed --mirroring-max-endpoints-per-subset."),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: "endpoints_sync_duration",
			Help: "Duration of a sync, in seconds.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}),
	}
	return c, errors.Join(err, sliceset.Register(deps.Metrics.Registerer, c.updated, c.skipped, c.duration))
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	c.metrics.Reset()
	r := &run{Controller: c, slices: sliceset.NewIndex(managedBy)}
	r.writer = sliceset.Writer{Client: c.deps.Client, Index: r.slices, Changed: c.metrics.Changed}
	r.loop = follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(onService)},
			{Selector: client.Selector{Resource: client.Endpoints}, Keys: follow.Plain(r.onEndpoints)},
			{Selector: client.Selector{Resource: client.EndpointSlices}, Keys: follow.Plain(r.slices.OnSlice)},
		},
		Reconcile: r.reconcile,
	})
	return r.loop.Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	loop   *follow.Loop[follow.Key]
	slices *sliceset.Index
	writer sliceset.Writer
}

// onService wakes a Service that gains or loses its selector, or is created or deleted without one.
func onService(old, new client.Object) []follow.Key {
	if selectorless(old) == selectorless(new) {
		return nil
	}
	return follow.OnAny(old, new)
}

func selectorless(obj client.Object) bool {
	s, _ := obj.(*corev1.Service)
	return s != nil && len(s.Spec.Selector) == 0
}

// onEndpoints wakes the Service of Endpoints that are, or were, mirrored. For those of a Service with a selector,
// reconcile reads only the Service.
func (r *run) onEndpoints(old, new client.Object) []follow.Key {
	was, _ := old.(*corev1.Endpoints)
	is, _ := new.(*corev1.Endpoints)
	if (was == nil || !mirrored(was)) && (is == nil || !mirrored(is)) {
		return nil
	}
	keys := follow.OnAny(old, new)
	if r.cfg.BatchPeriod > 0 {
		r.loop.AddAfter(r.cfg.BatchPeriod, keys...)
		return nil
	}
	return keys
}

// reconcile mirrors the Endpoints of one Service, or deletes their slices if they are no longer mirrored.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	began := r.deps.Clock.Now()
	defer func() { r.duration.Observe(r.deps.Clock.Since(began).Seconds()) }()
	e, err := r.source(ctx, key)
	if err != nil {
		return 0, err
	}
	if e == nil {
		r.metrics.Forget(key)
		return 0, r.writer.Delete(ctx, key, r.slices.Of(key))
	}
	existing, err := r.writer.Existing(ctx, key)
	if err != nil {
		return 0, err
	}
	m := mirrorOf(e, r.cfg.Max)
	r.recordEvents(e, m)
	_, headless := e.Labels[corev1.IsHeadlessService]
	owner := sliceset.Owner{
		Object: e, Kind: corev1.SchemeGroupVersion.WithKind("Endpoints"),
		Labels: sliceset.Labels(e.Labels, e.Name, managedBy, headless), Annotations: annotations(e),
	}
	plan := sliceset.Make(owner, existing, m.groups, sliceset.Options{Max: r.cfg.Max})
	r.metrics.Synced(key, plan, m.groups, r.cfg.Max)
	r.updated.Observe(float64(plan.Updated))
	return r.writer.Apply(ctx, key, owner, plan, time.Time{})
}

// source returns the Endpoints to mirror, or nil.
func (r *run) source(ctx context.Context, key follow.Key) (*corev1.Endpoints, error) {
	s, err := client.Get[*corev1.Service](ctx, r.deps.Client, key.Namespace, key.Name)
	if err == nil && len(s.Spec.Selector) > 0 || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := client.Get[*corev1.Endpoints](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil && !mirrored(e) {
		return nil, nil
	}
	return e, err
}

// recordEvents records Events about addresses that were not mirrored.
func (r *run) recordEvents(e *corev1.Endpoints, m mirror) {
	r.skipped.Observe(float64(m.skipped))
	if m.invalid > 0 {
		r.events.Eventf(e, corev1.EventTypeWarning, "InvalidIPAddress",
			"Skipped %d invalid IP addresses when mirroring to EndpointSlices", m.invalid)
	}
	if m.skipped > m.invalid {
		r.events.Eventf(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", r.cfg.Max,
			m.skipped)
	}
}
