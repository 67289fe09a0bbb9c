// Package resourcequota computes the status of ResourceQuotas: limits and usage. The status only informs users;
// admission computes the usage itself.
//
// The controller watches only the resources that some quota limits.
package resourcequota

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/quota"
)

// Name of the controller.
const Name = "resourcequota"

// pause is the minimum time between two counts of a namespace.
const pause = time.Second

// Config of the controller.
type Config struct {
	Kinds client.Kinds // the served kinds
}

// Controller recomputes the usage of a namespace's quotas when an object in the namespace changes.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller {
	return &Controller{deps: deps, cfg: cfg}
}

// kinds returns the namespaced kinds that quotas count.
func (c *Controller) kinds() (kinds []client.Kind) {
	for _, k := range c.cfg.Kinds.Now() {
		if k.Namespaced && quota.Applies(k.Resource.GroupResource()) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	r := &run{Controller: c, life: ctx, failed: cancel, counted: map[string]time.Time{},
		followed: map[schema.GroupVersionResource]context.CancelFunc{}}
	defer r.watches.Wait()
	defer cancel(nil)
	r.loop = follow.New(c.deps, follow.Config[string]{
		Name: Name,
		Sources: []follow.Source[string]{{Selector: client.Selector{Resource: client.ResourceQuotas},
			Keys: follow.Plain(onQuota)}},
		Reconcile: r.reconcile,
	})
	if err := r.loop.Run(ctx); err != nil {
		return err
	}
	if parent.Err() == nil {
		return context.Cause(ctx)
	}
	return nil
}

// onQuota wakes the namespace unless only the status has changed, which the controller writes.
func onQuota(old, new client.Object) []string {
	was, _ := old.(*corev1.ResourceQuota)
	is, _ := new.(*corev1.ResourceQuota)
	if was == nil || is == nil {
		return []string{namespaceOf(old, new)}
	}
	if equality.Semantic.DeepEqual(was.Spec, is.Spec) && equality.Semantic.DeepEqual(is.Status.Hard, is.Spec.Hard) {
		return nil
	}
	return []string{is.Namespace}
}

func namespaceOf(old, new client.Object) string {
	if new == nil {
		return old.GetNamespace()
	}
	return new.GetNamespace()
}

// run is the state of one Run of the controller. Only its single worker uses the maps.
type run struct {
	*Controller
	loop   *follow.Loop[string]
	life   context.Context // context of the run; watches outlive a Reconcile
	failed context.CancelCauseFunc

	counted  map[string]time.Time // namespaces with quotas, and the time of their last count
	followed map[schema.GroupVersionResource]context.CancelFunc
	watches  sync.WaitGroup
}

// reconcile counts the usage of the quotas of a namespace.
func (r *run) reconcile(ctx context.Context, namespace string) (time.Duration, error) {
	if wait := pause - r.deps.Clock.Since(r.counted[namespace]); wait > 0 {
		return wait, nil
	}
	all, err := client.List[*corev1.ResourceQuota](ctx, r.deps.Client, client.Selector{})
	if err != nil {
		return 0, err
	}
	r.follow(all)
	delete(r.counted, namespace)
	lists := map[schema.GroupVersionResource][]client.Object{}
	for _, q := range all {
		if q.Namespace != namespace {
			continue
		}
		r.counted[namespace] = r.deps.Clock.Now()
		if err := r.count(ctx, q, lists); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// count updates the status of one quota; lists caches lists of objects.
func (r *run) count(ctx context.Context, q *corev1.ResourceQuota,
	lists map[schema.GroupVersionResource][]client.Object) error {
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		used[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	for _, k := range r.kinds() {
		if !about(q, k.Resource.GroupResource()) {
			continue
		}
		objs, listed := lists[k.Resource]
		if !listed {
			var err error
			if objs, _, err = r.deps.Client.List(ctx,
				client.Selector{Resource: k.Resource, Namespace: q.Namespace}); err != nil {
				return err
			}
			lists[k.Resource] = objs
		}
		quota.Add(used, quota.Sum(&q.Spec, k.Resource.GroupResource(), objs, q.Spec.Hard, r.deps.Clock.Now()))
	}
	status := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: used}
	if equality.Semantic.DeepEqual(q.Status, status) {
		return nil
	}
	_, err := client.Update(ctx, r.deps.Client, q, "status", func(next *corev1.ResourceQuota) error {
		next.UID = q.UID // conflicts with another quota of the same name
		next.Status = status
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted or replaced, which wakes its namespace
	}
	return err
}

// about reports whether the quota limits something that objects of the resource use.
func about(q *corev1.ResourceQuota, gr schema.GroupResource) bool {
	for name := range q.Spec.Hard {
		if quota.Names(gr, name) {
			return true
		}
	}
	return false
}

// follow watches only the resources that the quotas limit.
func (r *run) follow(all []*corev1.ResourceQuota) {
	for _, k := range r.kinds() {
		wanted := false
		for _, q := range all {
			wanted = wanted || about(q, k.Resource.GroupResource())
		}
		stop, watched := r.followed[k.Resource]
		switch {
		case watched && !wanted:
			stop()
			delete(r.followed, k.Resource)
		case wanted && !watched:
			r.followed[k.Resource] = r.start(k.Resource)
		}
	}
}

// start watches one resource until the returned function is called.
func (r *run) start(gvr schema.GroupVersionResource) context.CancelFunc {
	ctx, stop := context.WithCancel(r.life)
	changes := follow.New(r.deps, follow.Config[string]{
		Name: Name + "-" + gvr.GroupResource().String(),
		Sources: []follow.Source[string]{{Selector: client.Selector{Resource: gvr},
			Keys: follow.Plain(func(old, new client.Object) []string {
				r.loop.Add(namespaceOf(old, new))
				return nil
			})}},
		Reconcile: func(context.Context, string) (time.Duration, error) { return 0, nil },
	})
	r.deps.Guard.Go(&r.watches, "controller", func() {
		if err := changes.Run(ctx); err != nil {
			r.failed(err)
		}
	})
	return stop
}
