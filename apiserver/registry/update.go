package registry

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/managed"
)

// Update implements client.Client.
func (r *Registry) Update(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
	res, err := r.FindStored(ref.Resource)
	if err != nil {
		return nil, err
	}
	if res.View != nil {
		return viewRegistry{r, res}.update(ctx, ref, change)
	}
	return r.update(ctx, res, ref, change)
}

// update is Update for a resource that is not a view.
func (r *Registry) update(ctx context.Context, res *Resource, ref client.Ref, change client.Change) (Object, error) {
	sub := res.Subresource(ref.Subresource)
	switch {
	case ref.Subresource == "":
	case sub == nil:
		return nil, apierror.NoSubresource(ref)
	case sub.Scale != nil:
		return r.updateScale(ctx, res, sub.Scale, ref, change)
	case sub.Update != nil:
		return sub.Update(ctx, r.subresourceRegistry(res, sub.Name), ref, change)
	}
	var reservations releases
	defer reservations.run()
	ctx, done := admission.During(ctx)
	defer done()
	return r.write(ctx, res, ref.Namespace, ref.Name, func(cur Object) (Object, error) {
		if cur == nil {
			return nil, apierrors.NewNotFound(res.GVR.GroupResource(), ref.Name)
		}
		next, err := change(cur)
		if err != nil || next == cur {
			return next, err
		}
		if next == nil {
			return nil, apierror.BadRequest("an update needs an object")
		}
		r.track(ctx, res, ref.Subresource, next, cur)
		return r.replace(ctx, res, next, cur, ref.Subresource, &reservations)
	})
}

// replace returns the object that replaces cur: next after admission and validation, or nil if next completes a
// deletion. It adds the addresses and ports that it allocates to reservations. The resourceVersion and the UID of next
// are preconditions: it returns a conflict if they differ from cur's.
func (r *Registry) replace(ctx context.Context, res *Resource, next, cur Object, sub string,
	reservations *releases) (Object, error) {
	if v := next.GetResourceVersion(); v != "" && v != cur.GetResourceVersion() {
		return nil, apierror.Modified(res, cur.GetName())
	}
	if u := next.GetUID(); u != "" && u != cur.GetUID() {
		return nil, apierror.Conflict(res, cur.GetName(),
			fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", u, cur.GetUID()))
	}
	operation := admission.Update
	part := res.Subresource(sub)
	if part != nil && !part.Can("update") { // a POST to the subresource
		operation = admission.Create
	}
	req := r.request(ctx, operation, res, sub, next, cur)
	if part != nil && part.Merge != nil {
		if err := part.Merge(next, cur, r.now()); err != nil {
			return nil, err
		}
	}
	next.GetObjectKind().SetGroupVersionKind(res.GVK())
	next.SetGenerateName(cur.GetGenerateName())
	kind.KeepMetadata(next, cur)
	if err := r.admission.Mutate(ctx, req); err != nil {
		return nil, err
	}
	res.PrepareUpdate(next, cur, sub)
	r.complete(res, next, cur)
	kind.CutTimes(next)
	if err := r.reserve(ctx, next, cur, sub, reservations); err != nil {
		return nil, err
	}
	errs := match.DeferredErrors(ctx, res, next, cur, sub)
	meta := field.NewPath("metadata")
	errs = append(errs, validation.ValidateObjectMetaAccessor(next, res.Namespaced, res.NameErrors, meta)...)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(next, cur, meta)...)
	if errs = append(errs, res.ValidateUpdate(next, cur, sub)...); len(errs) > 0 {
		return nil, apierror.Invalid(res, cur.GetName(), errs)
	}
	if err := r.admission.Validate(ctx, req); err != nil {
		return nil, err
	}
	if sub == "" {
		warnings(ctx, res, next, cur)
	}
	if deletionDone(res, next) {
		return nil, nil
	}
	managed.KeepTimes(next, cur)
	return next, nil
}

// updateScale runs change on the object's Scale and applies the result to the object.
func (r *Registry) updateScale(ctx context.Context, res *Resource, as *kind.Scale, ref client.Ref,
	change client.Change) (Object, error) {
	ref.Subresource = ""
	obj, err := r.update(match.WithPartOf(untracked(ctx), "scale"), res, ref, func(cur Object) (Object, error) {
		old, err := managed.ScaleOf(res, as, cur)
		if err != nil {
			return nil, err
		}
		scale, err := change(old)
		if err != nil {
			return nil, err
		}
		s, ok := scale.(*autoscalingv1.Scale)
		if !ok {
			return nil, apierror.BadRequest(fmt.Sprintf("scale takes a Scale of autoscaling/v1, not a %T", scale))
		}
		req := r.request(ctx, admission.Update, res, "scale", s, old)
		if err := r.dynamic.Mutate(ctx, req); err != nil {
			return nil, err
		}
		if s.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), ref.Name,
				field.ErrorList{
					field.Invalid(field.NewPath("spec", "replicas"), s.Spec.Replicas, validation.IsNegativeErrorMsg)})
		}
		if err := r.dynamic.Validate(ctx, req); err != nil {
			return nil, err
		}
		next := cur.DeepCopyObject().(Object)
		next.SetUID(s.UID)
		next.SetResourceVersion(s.ResourceVersion)
		as.Set(next, s)
		return next, r.trackScale(ctx, res, next, cur, s, old)
	})
	if err != nil {
		return nil, err
	}
	return as.Of(obj), nil
}
