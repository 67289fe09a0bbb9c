// Package garbagecollector deletes objects whose owners no longer exist, and carries out the foreground and orphan
// deletion of owners.
//
//   - index.go: finds the dependents of an owner's UID; everything else is read from the API when needed.
//   - collect.go: handles dependents, and owners that are being deleted.
//   - cycles.go: releases owners that wait for each other.
//
// The controller acts only on watch events.
package garbagecollector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
)

// Name of the controller.
const Name = "garbagecollector"

// Component is the source of its events.
const Component = "garbage-collector-controller"

// settleDelay is the delay between a change of the served kinds and watching them, because an installation creates many
// definitions.
const settleDelay = time.Second

// Config of the controller.
type Config struct {
	Kinds   client.Kinds // the served kinds
	Workers int          // --concurrent-gc-syncs; 0 means upstream's 20
}

// Controller collects garbage.
type Controller struct {
	deps   follow.Deps
	events record.Eventer
	cfg    Config

	current atomic.Pointer[index] // index of the current run, for DebuggingHandler
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, events record.Eventer, cfg Config) *Controller {
	cfg.Workers = cmp.Or(cfg.Workers, 20)
	return &Controller{deps: deps, events: events, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	for {
		kinds, changed := c.cfg.Kinds()
		if err := c.run(ctx, kinds, changed); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// run collects garbage until the served kinds change or ctx ends.
func (c *Controller) run(parent context.Context, kinds []client.Kind, changed <-chan struct{}) error {
	ctx, stop := context.WithCancel(parent)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	c.deps.Guard.Go(&waiting, "controller", func() {
		select {
		case <-changed:
			backoff.Sleep(ctx, c.deps.Clock, settleDelay)
			stop()
		case <-ctx.Done():
		}
	})
	r := &run{Controller: c, byKind: map[schema.GroupKind]client.Kind{}, index: newIndex()}
	c.current.Store(r.index)
	cfg := follow.Config[item]{Name: Name, Workers: c.cfg.Workers, Reconcile: r.reconcile}
	for _, kind := range kinds {
		r.byKind[kind.GroupKind()] = kind
		if kind.Unwatched {
			continue // its objects can be owners (upstream: the same)
		}
		r.kinds = append(r.kinds, kind)
		if kind.Resource == client.Events {
			continue // Childless kinds are many, short-lived, and have no owners
		}
		cfg.Sources = append(cfg.Sources, follow.Source[item]{
			Selector: client.Selector{Resource: kind.Resource},
			Keys: follow.Plain(func(old, new client.Object) []item {
				return r.changed(kind.Resource, old, new)
			}),
		})
	}
	r.loop = follow.New(c.deps, cfg)
	return r.loop.Run(ctx)
}

// item identifies an object by UID, so that a later object of the same name differs.
type item struct {
	resource        schema.GroupVersionResource
	namespace, name string
	uid             types.UID
}

func itemOf(resource schema.GroupVersionResource, obj client.Object) item {
	return item{resource, obj.GetNamespace(), obj.GetName(), obj.GetUID()}
}

// String formats an item for logs.
func (i item) String() string {
	return fmt.Sprintf("%s %s/%s %s", i.resource.Resource, i.namespace, i.name, i.uid)
}

func (i item) ref() client.Ref {
	return client.Ref{Resource: i.resource, Namespace: i.namespace, Name: i.name}
}

// run is the state of one Run of the controller.
type run struct {
	*Controller
	kinds  []client.Kind // kinds whose objects can have owners: those that can be watched
	byKind map[schema.GroupKind]client.Kind
	loop   *follow.Loop[item]
	index  *index
}

// changed updates the index, and wakes objects that may be garbage and the owners that wait for them.
func (r *run) changed(resource schema.GroupVersionResource, old, new client.Object) []item {
	var before, after []metav1.OwnerReference
	if old != nil {
		before = old.GetOwnerReferences()
	}
	if new == nil {
		me := itemOf(resource, old)
		r.index.change(me, before, nil)
		r.index.gone(me)
		return append(r.index.dependents(me.uid), r.index.waitingFor(before)...)
	}
	me := itemOf(resource, new)
	after = new.GetOwnerReferences()
	r.index.exists(me, deleting(new) && has(new, metav1.FinalizerDeleteDependents))
	var wake []item
	switch {
	case deleting(new) && (old == nil || !deleting(old)):
		wake = append(r.index.dependents(me.uid), me)
	case old == nil:
		wake = r.index.foreign(me)
	}
	if old != nil && equality.Semantic.DeepEqual(before, after) {
		return wake
	}
	r.index.change(me, before, after)
	wake = append(wake, r.index.waitingFor(before)...)
	if len(after) > 0 {
		wake = append(wake, me)
	}
	return wake
}

// deleting reports whether the object is being deleted and waits for the garbage collector.
func deleting(obj client.Object) bool {
	return obj.GetDeletionTimestamp() != nil &&
		(has(obj, metav1.FinalizerDeleteDependents) || has(obj, metav1.FinalizerOrphanDependents))
}

func has(obj client.Object, finalizer string) bool {
	return slices.Contains(obj.GetFinalizers(), finalizer)
}

// owner returns the item of an owner reference in an object of namespace.
func (r *run) owner(namespace string, ref metav1.OwnerReference) (item, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return item{}, false
	}
	kind, ok := r.byKind[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}]
	if !ok || (kind.Namespaced && namespace == "") {
		return item{}, false
	}
	if !kind.Namespaced {
		namespace = ""
	}
	return item{kind.Resource, namespace, ref.Name, ref.UID}, true
}

// get returns the object of an item, or nil if it no longer exists.
func (r *run) get(ctx context.Context, i item) (client.Object, error) {
	obj, err := r.deps.Client.Get(ctx, i.ref())
	if apierrors.IsNotFound(err) || (err == nil && obj.GetUID() != i.uid) {
		return nil, nil
	}
	return obj, err
}

// reconcile handles an owner's deletion, or deletes a dependent whose owners no longer exist. For the key findCycles it
// releases one owner of each cycle.
func (r *run) reconcile(ctx context.Context, i item) (time.Duration, error) {
	if i == findCycles {
		var errs []error
		for _, owner := range r.index.cycles() {
			errs = append(errs, r.unfinalize(ctx, owner, metav1.FinalizerDeleteDependents))
		}
		return 0, errors.Join(errs...)
	}
	obj, err := r.get(ctx, i)
	if obj == nil || err != nil {
		return 0, err
	}
	switch {
	case deleting(obj) && has(obj, metav1.FinalizerOrphanDependents):
		return 0, r.orphan(ctx, i)
	case deleting(obj):
		return 0, r.foreground(ctx, i)
	case obj.GetDeletionTimestamp() != nil:
		return 0, nil
	}
	return 0, r.collect(ctx, i, obj)
}
