package rbac

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
)

// Run watches the roles and bindings in c from the first authorization request until ctx ends. After a panic it returns
// an error.
func (z *Authorizer) Run(ctx context.Context, c client.Client) error {
	select {
	case <-z.begun:
	case <-ctx.Done():
		return nil
	}
	f := follow.Follower{Client: c, Clock: z.cfg.Clock, Log: z.cfg.Log, Name: "rbac"}
	group, ctx := guard.With(ctx)
	for _, resource := range resources() {
		group.Do(func() error {
			f.Follow(ctx, client.Selector{Resource: resource}, follow.Handler{
				List: func(_ context.Context, objs []client.Object) { z.replace(resource, objs) },
				Event: func(_ context.Context, typ watch.EventType, obj client.Object) {
					z.apply(resource, typ, obj)
				},
			})
			return nil
		})
	}
	return group.Wait()
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
