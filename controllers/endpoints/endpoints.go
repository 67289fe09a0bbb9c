// Package endpoints maintains the Endpoints of Services with selectors, for clients that do not read
// EndpointSlices yet.
package endpoints

import (
	"cmp"
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
	"monopod/controllers/servicestate"
)

// Name of the controller.
const Name = "endpoint"

// Component is the source of its events.
const Component = "endpoint-controller"

const (
	// labelManagedBy is the label of the objects that the controller maintains, with the value Component (upstream's).
	labelManagedBy = "endpoints.kubernetes.io/managed-by"
	// truncated is the value of the annotation endpoints.kubernetes.io/over-capacity of truncated Endpoints.
	truncated = "truncated"
)

// Config of the controller.
type Config struct {
	Workers     int           // --concurrent-endpoint-syncs; 0 means upstream's 5
	BatchPeriod time.Duration // --endpoint-updates-batch-period
}

// Controller maintains Endpoints.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, state: servicestate.NewIndex(), triggers: servicestate.NewTriggers()}
	r.loop = follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Services}, Keys: follow.Plain(r.state.OnService)},
			{Selector: client.Selector{Resource: client.Pods}, Keys: follow.Plain(r.onPod)},
			{Selector: client.Selector{
				Resource: client.Endpoints, Labels: labels.SelectorFromSet(labels.Set{labelManagedBy: Component}),
			}, Keys: follow.Plain(onEndpoints)},
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
}

func (r *run) onPod(old, new client.Object) []follow.Key {
	keys := r.state.OnPod(old, new)
	if r.cfg.BatchPeriod > 0 {
		r.loop.AddAfter(r.cfg.BatchPeriod, keys...)
		return nil
	}
	return keys
}

// onEndpoints wakes the Service of Endpoints that appear, since the Service may have been deleted while the controller
// did not run, or disappear. As in upstream, other changes by users stay until the Service's endpoints change.
func onEndpoints(old, new client.Object) []follow.Key {
	if old != nil && new != nil {
		return nil
	}
	return follow.OnAny(old, new)
}

// reconcile updates the Endpoints of one Service, or deletes them if the Service no longer exists.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	s, err := client.Get[*corev1.Service](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		r.triggers.Forget(key)
		ref := client.Ref{Resource: client.Endpoints, Namespace: key.Namespace, Name: key.Name}
		if _, err = r.deps.Client.Delete(ctx, ref, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, err
	}
	if err != nil {
		return 0, err
	}
	if !servicestate.Selects(s) {
		r.triggers.Forget(key)
		return 0, nil // users maintain the Endpoints of Services without a selector
	}
	return 0, r.sync(ctx, s, r.desired(s))
}

// desired contains what the Endpoints of a Service should contain.
type desired struct {
	subsets   []corev1.EndpointSubset
	truncated bool      // there are more than maxCapacity addresses
	at        time.Time // time of the change that caused the update
}

func (r *run) desired(s *corev1.Service) desired {
	pods := r.state.Pods(s)
	d := desired{at: r.triggers.Next(s, pods), subsets: subsetsOf(s, pods)}
	d.truncated = truncate(d.subsets)
	return d
}

// sync creates the Endpoints of a Service, or updates them if they differ.
func (r *run) sync(ctx context.Context, s *corev1.Service, d desired) error {
	cur, err := client.Get[*corev1.Endpoints](ctx, r.deps.Client, s.Namespace, s.Name)
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, s, d)
	case err != nil:
		return err
	}
	if _, marked := cur.Annotations[corev1.EndpointsOverCapacity]; marked == d.truncated &&
		maps.Equal(cur.Labels, labelsOf(s)) && equality.Semantic.DeepEqual(cur.Subsets, d.subsets) {
		return nil
	}
	_, err = client.Update(ctx, r.deps.Client, cur, "", func(next *corev1.Endpoints) error {
		fill(next, s, d)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		r.events.Eventf(cur, corev1.EventTypeWarning, "FailedToUpdateEndpoint", "Failed to update endpoint %v/%v: %v",
			s.Namespace, s.Name, err)
	}
	return err
}

func (r *run) create(ctx context.Context, s *corev1.Service, d desired) error {
	next := &corev1.Endpoints{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
	}
	fill(next, s, d)
	_, err := r.deps.Client.Create(ctx, next)
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if ctx.Err() == nil {
		r.events.Eventf(s, corev1.EventTypeWarning, "FailedToCreateEndpoint",
			"Failed to create endpoint for service %v/%v: %v", s.Namespace, s.Name, err)
	}
	return err
}

// fill sets the fields that the controller maintains.
func fill(e *corev1.Endpoints, s *corev1.Service, d desired) {
	e.Labels, e.Subsets = labelsOf(s), d.subsets
	e.Annotations = servicestate.Stamp(e.Annotations, d.at)
	if !d.truncated {
		delete(e.Annotations, corev1.EndpointsOverCapacity)
		return
	}
	if e.Annotations == nil {
		e.Annotations = map[string]string{}
	}
	e.Annotations[corev1.EndpointsOverCapacity] = truncated
}

// labelsOf returns the labels of the Endpoints of a Service.
func labelsOf(s *corev1.Service) map[string]string {
	out := make(map[string]string, len(s.Labels)+2)
	maps.Copy(out, s.Labels)
	delete(out, corev1.IsHeadlessService)
	if servicestate.Headless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	out[labelManagedBy] = Component
	return out
}
