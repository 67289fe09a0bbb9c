package rbac

import (
	"context"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/client"
)

// Run follows the roles and bindings in c from the first question on, until ctx
// ends.
func (z *Authorizer) Run(ctx context.Context, c client.Client) error {
	select {
	case <-z.asked:
	case <-ctx.Done():
		return nil
	}
	var group errgroup.Group
	for _, resource := range resources() {
		group.Go(func() error {
			z.follow(ctx, c, resource)
			return nil
		})
	}
	return group.Wait()
}

// follow lists and watches until ctx ends, and begins again, after a pause, when a
// watch does.
func (z *Authorizer) follow(ctx context.Context, c client.Client, resource schema.GroupVersionResource) {
	for delay := minRetry; ctx.Err() == nil; delay = min(2*delay, maxRetry) {
		began := z.cfg.Clock.Now()
		err := z.once(ctx, c, resource)
		if ctx.Err() != nil {
			return
		}
		if z.cfg.Clock.Since(began) > maxRetry {
			delay = minRetry
		}
		if err != nil {
			z.cfg.Log.Warn("cannot follow access control", zap.String("resource", resource.Resource), zap.Error(err))
		}
		select {
		case <-z.cfg.Clock.After(delay):
		case <-ctx.Done():
		}
	}
}

func (z *Authorizer) once(ctx context.Context, c client.Client, resource schema.GroupVersionResource) error {
	sel := client.Selector{Resource: resource}
	objs, revision, err := c.List(ctx, sel)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := c.Watch(ctx, sel, revision)
	if err != nil {
		return err
	}
	z.replace(resource, objs)
	for ev := range changes {
		obj, ok := ev.Object.(client.Object)
		if !ok { // the watch fell behind
			return nil
		}
		z.apply(resource, ev.Type, obj)
	}
	return nil
}

func (z *Authorizer) replace(resource schema.GroupVersionResource, objs []client.Object) {
	all := make(map[key]client.Object, len(objs))
	for _, obj := range objs {
		all[keyOf(obj)] = obj
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.objects[resource] == nil {
		z.missing--
	}
	z.objects[resource], z.current = all, nil
	select {
	case <-z.ready:
	default:
		if z.missing == 0 {
			close(z.ready)
		}
	}
}

func (z *Authorizer) apply(resource schema.GroupVersionResource, typ watch.EventType, obj client.Object) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.current = nil
	if typ == watch.Deleted {
		delete(z.objects[resource], keyOf(obj))
		return
	}
	z.objects[resource][keyOf(obj)] = obj
}

func keyOf(obj client.Object) key { return key{obj.GetNamespace(), obj.GetName()} }
