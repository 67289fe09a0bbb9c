package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/convert"
)

// viewRegistry writes objects of a resource that is a view.
type viewRegistry struct {
	*Registry
	res *Resource
}

// create stores an object of the view. The view's defaults and validation run first, because their errors name the
// client's fields.
func (v viewRegistry) create(ctx context.Context, obj Object) (Object, error) {
	res := v.res
	if !res.Can("create") {
		return nil, apierror.Creation(res, obj.GetName())
	}
	if res.Default != nil {
		res.Default(obj)
	}
	ctx, deferred := v.admissionContext(ctx, res)
	if res.Validate != nil && !deferred {
		if errs := res.Validate(obj, nil, ""); len(errs) > 0 {
			return nil, apierror.Invalid(res, nameOr(obj), errs)
		}
	}
	converted, err := res.View.ToStored(ctx, obj)
	if err != nil {
		return nil, err
	}
	stored, err := v.Registry.create(ctx, v.Base(res), converted)
	if err != nil {
		return nil, err
	}
	return convert.Of(ctx, res, stored)
}

// admissionContext returns the context of a write through the view. deferred reports whether the view's validation must
// run after mutating admission.
func (v viewRegistry) admissionContext(ctx context.Context, res *Resource) (_ context.Context, deferred bool) {
	if !v.hooks.Any() && !v.policies.Any() {
		return ctx, false
	}
	deferred = res.Schema != nil && (v.hooks.AnyMutating() || v.policies.AnyMutating())
	return match.WithView(ctx, res, v.Base(res), deferred), deferred
}

// update runs change on the view of the stored object.
func (v viewRegistry) update(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
	res := v.res
	sub := v.Base(res).Subresource(ref.Subresource)
	scales := sub != nil && sub.Scale != nil
	ctx, deferred := v.admissionContext(ctx, res)
	stored, err := v.Registry.update(ctx, v.Base(res), ref, func(cur Object) (Object, error) {
		if scales { // all views have the same Scale
			return change(cur)
		}
		old, err := convert.Of(ctx, res, cur)
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
		if res.Validate != nil && !deferred {
			if errs := res.Validate(next, old, ref.Subresource); len(errs) > 0 {
				return nil, apierror.Invalid(res, ref.Name, errs)
			}
		}
		return res.View.ToStored(ctx, next)
	})
	if err != nil || scales {
		return stored, err
	}
	return convert.Of(ctx, res, stored)
}

// remove deletes the stored object of the view.
func (v viewRegistry) remove(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (Object, error) {
	res := v.res
	self := convert.SkipsConversion(ctx, res)
	if convert.Converts(res) && !self { // delete only if the result can be converted
		if _, err := v.Entry(ctx, ref); err != nil {
			return nil, err
		}
	}
	ctx, _ = v.admissionContext(ctx, res)
	last, err := v.Registry.remove(ctx, v.Base(res), ref, opts)
	if err != nil {
		return nil, err
	}
	if self {
		return convert.Unconverted(res, last), nil
	}
	return convert.Of(ctx, res, last)
}
