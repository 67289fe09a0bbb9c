// Package horizontalpodautoscaler scales workloads by the resource usage of their pods.
//
//   - decide.go: one evaluation as a pure function, with its conditions and Events.
//   - metrics.go: the recommendation of each metric.
//   - usage.go: resource metrics, and the pods whose usage is ignored.
//   - limits.go: stabilization, the policies of the behavior, and the range.
//   - monitor.go: the controller's own metrics.
//   - selectors.go: finds pods that several autoscalers select.
//
// An autoscaler is evaluated when it is created, when its spec changes, and then once in each sync period. Without
// autoscalers the controller reads nothing.
package horizontalpodautoscaler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/kit/record"
)

// Name of the controller.
const Name = "horizontalpodautoscaling"

// Component is the source of its events.
const Component = "horizontal-pod-autoscaler"

// Settings are upstream's --horizontal-pod-autoscaler-* flags. A duration of 0 is upstream's default.
type Settings struct {
	SyncPeriod              time.Duration // 15 s
	DownscaleStabilization  time.Duration // 5 min
	CPUInitializationPeriod time.Duration // 5 min
	InitialReadinessDelay   time.Duration // 30 s
	Tolerance               float64       // upstream's default is 0.1
}

// Config of the controller. Its Client must serve metrics.k8s.io.
type Config struct {
	Settings
	Kinds   client.Kinds // the served kinds
	Workers int          // --concurrent-horizontal-pod-autoscaler-syncs; 0 means upstream's 5
}

// Controller scales workloads.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config
	counts *monitor
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) (*Controller, error) {
	cfg.Workers = cmp.Or(cfg.Workers, 5)
	cfg.SyncPeriod = cmp.Or(cfg.SyncPeriod, 15*time.Second)
	cfg.DownscaleStabilization = cmp.Or(cfg.DownscaleStabilization, 5*time.Minute)
	cfg.CPUInitializationPeriod = cmp.Or(cfg.CPUInitializationPeriod, 5*time.Minute)
	cfg.InitialReadinessDelay = cmp.Or(cfg.InitialReadinessDelay, 30*time.Second)
	counts, err := newMonitor(deps.Metrics)
	return &Controller{deps: deps, events: events, cfg: cfg, counts: counts}, err
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	r := &run{Controller: c, selectors: newSelectors(), history: map[follow.Key]history{}}
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:    Name,
		Workers: c.cfg.Workers,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.HorizontalPodAutoscalers}, Keys: follow.Plain(r.onAutoscaler)},
		},
		Reconcile: r.reconcile,
	}).Run(ctx)
}

// run is the state of one Run of the controller.
type run struct {
	*Controller

	mu        sync.Mutex // guards the fields below
	selectors *selectors
	history   map[follow.Key]history
}

// onAutoscaler wakes an autoscaler that is created or deleted, or whose spec changes.
func (r *run) onAutoscaler(old, new client.Object) []follow.Key {
	was, _ := old.(*autoscalingv2.HorizontalPodAutoscaler)
	is, _ := new.(*autoscalingv2.HorizontalPodAutoscaler)
	if was != nil && is != nil && was.UID == is.UID && equality.Semantic.DeepEqual(&was.Spec, &is.Spec) {
		return nil
	}
	return follow.OnAny(old, new)
}

// reconcile evaluates an autoscaler. As in upstream, a failed evaluation is not retried before the next period, when
// new metrics are available.
func (r *run) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	hpa, err := client.Get[*autoscalingv2.HorizontalPodAutoscaler](ctx, r.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.selectors.put(key, nil)
		delete(r.history, key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	began := r.deps.Clock.Now()
	v, err := r.evaluate(ctx, key, hpa)
	r.counts.record(v, err, r.deps.Clock.Since(began))
	if err != nil {
		return 0, err
	}
	for _, e := range v.events {
		r.events.Eventf(hpa, e.kind, e.reason, "%s", e.message)
	}
	if v.err != nil {
		r.deps.Log.Debug("failed to evaluate an autoscaler", zap.String("namespace", key.Namespace),
			zap.String("horizontalpodautoscaler", key.Name), zap.Error(v.err))
	}
	return r.cfg.SyncPeriod, r.write(ctx, hpa, &v.status)
}

// conflicts is the number of immediate retries after the target was changed during an evaluation (upstream's retries of
// a conflict).
const conflicts = 5

// evaluate decides and scales. If the target changes in between, as during a rollout, it decides again.
func (r *run) evaluate(ctx context.Context, key follow.Key,
	hpa *autoscalingv2.HorizontalPodAutoscaler) (v *verdict, err error) {
	for range conflicts {
		if v, err = r.tryScale(ctx, key, hpa); err != nil || !apierrors.IsConflict(v.err) {
			break
		}
	}
	return v, err
}

func (r *run) tryScale(ctx context.Context, key follow.Key,
	hpa *autoscalingv2.HorizontalPodAutoscaler) (*verdict, error) {
	now := r.deps.Clock.Now()
	target, err := r.target(hpa)
	if err != nil {
		return unscalable(hpa, now, err), nil
	}
	scale, err := r.scaleOf(ctx, target)
	if err != nil {
		return unscalable(hpa, now, err), ctx.Err()
	}
	in := &input{Settings: r.cfg.Settings, hpa: hpa, current: scale.Spec.Replicas, now: now}
	r.mu.Lock()
	in.history = r.history[key]
	r.mu.Unlock()
	if in.history.uid != hpa.UID {
		in.history = history{uid: hpa.UID}
	}
	if _, _, _, ok := in.byRange(); !ok {
		if err := r.observe(ctx, key, in, scale.Status.Selector); err != nil {
			return nil, err
		}
	}
	v := decide(in)
	if v.rescale {
		if err := r.rescale(ctx, target, scale, v.replicas); err != nil {
			v.unscaled(in, err)
		} else {
			v.scaled(in)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history[key] = v.history
	return v, ctx.Err()
}

// target returns the scale that the autoscaler refers to.
func (r *run) target(hpa *autoscalingv2.HorizontalPodAutoscaler) (client.Ref, error) {
	ref := hpa.Spec.ScaleTargetRef
	kind, err := r.cfg.Kinds.Named(ref.APIVersion, ref.Kind)
	if err != nil && !meta.IsNoMatchError(err) {
		err = specError{err}
	}
	return client.Ref{Resource: kind.Resource, Namespace: hpa.Namespace, Name: ref.Name, Subresource: "scale"}, err
}

func (r *run) scaleOf(ctx context.Context, target client.Ref) (*autoscalingv1.Scale, error) {
	obj, err := r.deps.Client.Get(ctx, target)
	if err != nil {
		return nil, err
	}
	scale, ok := obj.(*autoscalingv1.Scale)
	if !ok {
		return nil, fmt.Errorf("the scale of %s is a %T", target.Resource.Resource, obj)
	}
	return scale, nil
}

// rescale sets the target's replicas. It conflicts if the target has changed since it was read.
func (r *run) rescale(ctx context.Context, target client.Ref, read *autoscalingv1.Scale, replicas int32) error {
	_, err := r.deps.Client.Update(ctx, target, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*autoscalingv1.Scale)
		next.UID, next.ResourceVersion, next.Spec.Replicas = read.UID, read.ResourceVersion, replicas
		return next, nil
	})
	return err
}

// observe reads the pods of the target and their usage.
func (r *run) observe(ctx context.Context, key follow.Key, in *input, selector string) (err error) {
	in.selection, in.selectErr = parse(selector)
	r.mu.Lock()
	r.selectors.put(key, in.selection)
	r.mu.Unlock()
	if in.selectErr != nil {
		return nil
	}
	in.pods, err = client.List[*corev1.Pod](ctx, r.deps.Client,
		client.Selector{Namespace: key.Namespace, Labels: in.selection})
	if err != nil {
		return err
	}
	r.mu.Lock()
	in.rivals = r.selectors.selecting(in.pods)
	r.mu.Unlock()
	in.usage = r.usage(ctx, key.Namespace, in.selection)
	return ctx.Err()
}

// parse parses the selector of a scale.
func parse(selector string) (labels.Selector, *failure) {
	if selector == "" {
		return nil, &failure{"SelectorRequired", errors.New("the HPA target's scale is missing a selector"),
			errors.New("selector is required")}
	}
	s, err := labels.Parse(selector)
	if err != nil {
		err = fmt.Errorf("couldn't convert selector into a corresponding internal selector object: %w", err)
		return nil, &failure{"InvalidSelector", err, err}
	}
	return s, nil
}

// usage reads metrics.k8s.io.
func (r *run) usage(ctx context.Context, namespace string, of labels.Selector) (u usage) {
	began := r.deps.Clock.Now()
	defer func() { u.took = r.deps.Clock.Since(began) }()
	objs, _, err := r.deps.Client.List(ctx, client.Selector{Resource: metrics.Pods(), Namespace: namespace, Labels: of})
	if err != nil {
		return usage{err: err}
	}
	for _, obj := range objs {
		if m, ok := obj.(*metrics.PodMetrics); ok {
			u.pods = append(u.pods, m)
		}
	}
	return u
}

// write stores the status if it is worth writing.
func (r *run) write(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler,
	status *autoscalingv2.HorizontalPodAutoscalerStatus) error {
	if !worthWriting(&hpa.Status, status, hpa.Spec.Metrics) {
		return nil
	}
	_, err := client.Update(ctx, r.deps.Client, hpa, "status", func(cur *autoscalingv2.HorizontalPodAutoscaler) error {
		cur.UID = hpa.UID // conflicts with another autoscaler of the same name
		cur.Status = *status.DeepCopy()
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		r.events.Eventf(hpa, corev1.EventTypeWarning, "FailedUpdateStatus", "%v", err)
	}
	return err
}
