package registry

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission/match"
	"monopod/store"
)

// shown returns a stored object as clients of res see it.
func shown(ctx context.Context, res *Resource, stored Object) (Object, error) {
	if res.View == nil || stored == nil {
		return stored, nil
	}
	obj, err := res.View.Shown(ctx, stored)
	if err != nil {
		return nil, err
	}
	return named(res, obj, stored), nil
}

// named returns an object that was converted from stored, with the kind of res.
func named(res *Resource, obj, stored Object) Object {
	if as := obj.GetObjectKind(); obj != stored && as.GroupVersionKind() != res.GVK() { // others may share a converted object
		as.SetGroupVersionKind(res.GVK())
	}
	return obj
}

// forSelf reports whether a part of this process reads objects of res that a webhook converts. Such a part uses only their metadata,
// and must work when the webhook does not.
func forSelf(ctx context.Context, res *Resource) bool {
	_, known := auth.Known(ctx)
	return !known && res.View != nil && res.View.Converter != nil
}

// Shown returns a stored entry as clients of res see it.
func Shown(ctx context.Context, res *Resource, e *store.Entry) (*store.Entry, error) {
	out, err := allShown(ctx, res, []*store.Entry{e})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// allShown is Shown for several entries.
func allShown(ctx context.Context, res *Resource, entries []*store.Entry) ([]*store.Entry, error) {
	if res.View == nil {
		return entries, nil
	}
	var converted []Object
	if c := res.View.Converter; c != nil {
		stored := make([]Object, len(entries))
		for i, e := range entries {
			stored[i] = e.Object
		}
		var err error
		if converted, err = c.Show(ctx, stored); err != nil {
			return nil, err
		}
	}
	out := make([]*store.Entry, len(entries))
	for i, e := range entries {
		var obj Object
		if converted != nil {
			obj = converted[i]
		} else {
			obj = res.View.Show(e.Object)
		}
		if out[i] = e; obj == e.Object {
			continue
		}
		data, err := json.Marshal(named(res, obj, e.Object))
		if err != nil {
			return nil, err
		}
		out[i] = &store.Entry{Key: e.Key, Rev: e.Rev, Object: obj, JSON: data}
	}
	return out, nil
}

// viewed is a resource that is a view, for writes.
type viewed struct {
	*Registry
	res *Resource
}

// create creates the stored object of a view. The view's defaults and validation run first,
// because their errors name the client's fields.
func (v viewed) create(ctx context.Context, obj Object) (Object, error) {
	res := v.res
	if !res.Can("create") {
		return nil, errCreation(res, obj.GetName())
	}
	if res.Default != nil {
		res.Default(obj)
	}
	ctx, late := v.through(ctx, res)
	if res.Validate != nil && !late {
		if errs := res.Validate(obj, nil, ""); len(errs) > 0 {
			return nil, errInvalid(res, nameOr(obj), errs)
		}
	}
	converted, err := res.View.Stored(ctx, obj)
	if err != nil {
		return nil, err
	}
	stored, err := v.Registry.create(ctx, v.base(res), converted)
	if err != nil {
		return nil, err
	}
	return shown(ctx, res, stored)
}

// through returns the context of a write through the view. late: the view validates after the mutating webhooks.
func (v viewed) through(ctx context.Context, res *Resource) (_ context.Context, late bool) {
	if !v.hooks.Any() && !v.policies.Any() {
		return ctx, false
	}
	late = res.Schema != nil && v.hooks.AnyMutating()
	return match.Through(ctx, res, v.base(res), late), late
}

// update runs change on the view of the stored object.
func (v viewed) update(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
	res := v.res
	sub := v.base(res).Subresource(ref.Subresource)
	scales := sub != nil && sub.Scale != nil
	ctx, late := v.through(ctx, res)
	stored, err := v.Registry.update(ctx, v.base(res), ref, func(cur Object) (Object, error) {
		if scales { // a Scale is the same in every view
			return change(cur)
		}
		old, err := shown(ctx, res, cur)
		if err != nil {
			return nil, err
		}
		next, err := change(old)
		if err != nil || next == nil {
			return next, err
		}
		if next == old {
			return cur, nil
		}
		if res.Default != nil {
			res.Default(next)
		}
		if res.Validate != nil && !late {
			if errs := res.Validate(next, old, ref.Subresource); len(errs) > 0 {
				return nil, errInvalid(res, ref.Name, errs)
			}
		}
		return res.View.Stored(ctx, next)
	})
	if err != nil || scales {
		return stored, err
	}
	return shown(ctx, res, stored)
}

// remove deletes the stored object of a view.
func (v viewed) remove(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (Object, error) {
	res := v.res
	self := forSelf(ctx, res)
	if res.View.Converter != nil && !self { // an object that cannot be returned is not deleted
		if _, err := v.Entry(ctx, ref); err != nil {
			return nil, err
		}
	}
	ctx, _ = v.through(ctx, res)
	last, err := v.Registry.remove(ctx, v.base(res), ref, opts)
	if err != nil {
		return nil, err
	}
	if self {
		return named(res, res.View.Show(last), last), nil
	}
	return shown(ctx, res, last)
}
