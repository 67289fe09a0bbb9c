package registry

import (
	"context"
	"fmt"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/managed"
	"monopod/apiserver/registry/pod"
)

// Update implements client.Client.
func (r *Registry) Update(ctx context.Context, ref client.Ref, change client.Change) (Object, error) {
	res, err := r.stored(ref.Resource)
	if err != nil {
		return nil, err
	}
	if res.View != nil {
		return r.updateView(ctx, res, ref, change)
	}
	if ref.Subresource == "scale" {
		return r.updateScale(ctx, res, ref, change)
	}
	if ref.Subresource != "" && !res.Serves(ref.Subresource) {
		return nil, errNoSubresource(ref)
	}
	switch ref.Subresource {
	case "eviction":
		return r.evictions.Update(ctx, ref, change)
	case "token":
		return r.requestToken(ctx, ref, change)
	}
	var claims held
	defer claims.release()
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
			return nil, errBadRequest("an update needs an object")
		}
		r.track(ctx, res, ref.Subresource, next, cur)
		return r.replace(ctx, res, next, cur, ref.Subresource, &claims)
	})
}

// replace makes next what may be stored in the place of cur, or nil when it was
// the last thing that held a deletion. What it takes of the cluster is in claims.
func (r *Registry) replace(ctx context.Context, res *Resource, next, cur Object, sub string, claims *held) (Object, error) {
	if err := r.sameObject(res, next, cur); err != nil {
		return nil, err
	}
	admitted := r.request(ctx, operation(sub), res, sub, next, cur)
	if sub == "binding" {
		if err := r.bind(res, next.(*corev1.Pod), cur.(*corev1.Pod)); err != nil {
			return nil, err
		}
	}
	keepMetadata(res, next, cur)
	if err := r.admission.Mutate(ctx, admitted); err != nil {
		return nil, err
	}
	if res.Prepare != nil {
		res.Prepare(next, cur, sub)
	}
	defaults(res, next)
	if err := r.claim(ctx, next, cur, sub, claims); err != nil {
		return nil, err
	}
	if errs := validateUpdate(res, next, cur, sub); len(errs) > 0 {
		return nil, errInvalid(res, cur.GetName(), errs)
	}
	if err := r.admission.Validate(ctx, admitted); err != nil {
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

// operation is what a write to a subresource does: a binding is created.
func operation(sub string) admission.Operation {
	if sub == "binding" {
		return admission.Create
	}
	return admission.Update
}

// sameObject is the optimistic lock: what the client names of the object it
// read must still be so.
func (r *Registry) sameObject(res *Resource, next, cur Object) error {
	if v := next.GetResourceVersion(); v != "" && v != cur.GetResourceVersion() {
		return errModified(res, cur.GetName())
	}
	if u := next.GetUID(); u != "" && u != cur.GetUID() {
		return errConflict(res, cur.GetName(), fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", u, cur.GetUID()))
	}
	return nil
}

// keepMetadata restores what clients may not change.
func keepMetadata(res *Resource, next, cur Object) {
	next.GetObjectKind().SetGroupVersionKind(res.GVK())
	next.SetUID(cur.GetUID())
	next.SetResourceVersion(cur.GetResourceVersion())
	next.SetGenerateName(cur.GetGenerateName())
	next.SetCreationTimestamp(cur.GetCreationTimestamp())
	next.SetDeletionTimestamp(cur.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(cur.GetDeletionGracePeriodSeconds())
	next.SetGeneration(cur.GetGeneration())
	next.SetSelfLink("")
}

func validateUpdate(r *Resource, next, cur Object, sub string) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(next, r.Namespaced, r.NameErrors, meta)
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(next, cur, meta)...)
	if cur.GetDeletionTimestamp() != nil {
		for _, f := range next.GetFinalizers() {
			if !slices.Contains(cur.GetFinalizers(), f) {
				errs = append(errs, field.Forbidden(meta.Child("finalizers"),
					fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new finalizer %q", f)))
			}
		}
	}
	if r.Validate != nil {
		errs = append(errs, r.Validate(next, cur, sub)...)
	}
	return errs
}

// updateScale runs change over the object's Scale and carries the result back.
func (r *Registry) updateScale(ctx context.Context, res *Resource, ref client.Ref, change client.Change) (Object, error) {
	if res.Scale == nil {
		return nil, errNoSubresource(ref)
	}
	ref.Subresource = ""
	obj, err := r.Update(untracked(ctx), ref, func(cur Object) (Object, error) {
		old, err := managed.ScaleOf(res, cur)
		if err != nil {
			return nil, err
		}
		scale, err := change(old)
		if err != nil {
			return nil, err
		}
		s, ok := scale.(*autoscalingv1.Scale)
		if !ok {
			return nil, errBadRequest(fmt.Sprintf("scale takes a Scale of autoscaling/v1, not a %T", scale))
		}
		if s.Spec.Replicas < 0 {
			return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), ref.Name, field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), s.Spec.Replicas, validation.IsNegativeErrorMsg)})
		}
		next := cur.DeepCopyObject().(Object)
		next.SetUID(s.UID)
		next.SetResourceVersion(s.ResourceVersion)
		res.Scale.Set(next, s)
		return next, r.trackScale(ctx, res, next, cur, s, old)
	})
	if err != nil {
		return nil, err
	}
	return res.Scale.Of(obj), nil
}

// bind lets a pod onto its node once.
func (r *Registry) bind(res *Resource, next, cur *corev1.Pod) error {
	switch target := next.Spec.NodeName; {
	case target == "":
		return errBadRequest("a binding needs the name of a node")
	case cur.DeletionTimestamp != nil:
		return errConflict(res, cur.Name, fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", cur.Name))
	case cur.Spec.NodeName != "":
		return errConflict(res, cur.Name, fmt.Sprintf("pod %s is already assigned to node %q", cur.Name, cur.Spec.NodeName))
	case len(cur.Spec.SchedulingGates) > 0:
		return errConflict(res, cur.Name, fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", cur.Name))
	}
	annotations := next.Annotations
	target := next.Spec.NodeName
	cur.DeepCopyInto(next)
	for k, v := range annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, k, v)
	}
	pod.Bind(next, target, r.now())
	return nil
}
