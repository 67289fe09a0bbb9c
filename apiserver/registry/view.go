package registry

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/store"
)

// shown returns a stored object as clients of res see it.
func shown(res *Resource, stored Object) Object {
	if res.View == nil || stored == nil {
		return stored
	}
	obj := res.View.Show(stored)
	obj.GetObjectKind().SetGroupVersionKind(res.GVK())
	return obj
}

// Shown returns a stored entry as clients of res see it.
func Shown(res *Resource, e *store.Entry) (*store.Entry, error) {
	if res.View == nil {
		return e, nil
	}
	obj := shown(res, e.Object)
	data, err := json.Marshal(obj)
	return &store.Entry{Key: e.Key, Rev: e.Rev, Object: obj, JSON: data}, err
}

// allShown is Shown for several entries.
func allShown(res *Resource, entries []*store.Entry) ([]*store.Entry, error) {
	if res.View == nil {
		return entries, nil
	}
	out := make([]*store.Entry, len(entries))
	for i, e := range entries {
		var err error
		if out[i], err = Shown(res, e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// createView creates the stored object of a view. The view's defaults and validation run first,
// because their errors name the client's fields.
func (r *Registry) createView(ctx context.Context, res *Resource, obj Object) (Object, error) {
	if res.Default != nil {
		res.Default(obj)
	}
	if res.Validate != nil {
		if errs := res.Validate(obj, nil, ""); len(errs) > 0 {
			return nil, errInvalid(res, nameOr(obj), errs)
		}
	}
	stored, err := r.Create(ctx, res.View.Store(obj))
	if err != nil {
		return nil, err
	}
	return shown(res, stored), nil
}

// updateView runs change on the view of the stored object.
func (r *Registry) updateView(ctx context.Context, res *Resource, ref client.Ref, change client.Change) (Object, error) {
	sub := r.base(res).Subresource(ref.Subresource)
	scales := sub != nil && sub.Scale != nil
	stored, err := r.Update(ctx, r.at(res, ref), func(cur Object) (Object, error) {
		if scales { // a Scale is the same in every view
			return change(cur)
		}
		old := shown(res, cur)
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
		if res.Validate != nil {
			if errs := res.Validate(next, old, ref.Subresource); len(errs) > 0 {
				return nil, errInvalid(res, ref.Name, errs)
			}
		}
		return res.View.Store(next), nil
	})
	if err != nil || scales {
		return stored, err
	}
	return shown(res, stored), nil
}

// deleteView deletes the stored object of a view.
func (r *Registry) deleteView(ctx context.Context, res *Resource, ref client.Ref, opts metav1.DeleteOptions) (Object, error) {
	last, err := r.Delete(ctx, r.at(res, ref), opts)
	if err != nil {
		return nil, err
	}
	return shown(res, last), nil
}
