package registry

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/apierror"
)

// Delete implements client.Client. It removes the object, or marks it for deletion if it has a grace period or
// finalizers. It returns the marked object, or the last state of the removed one.
func (r *Registry) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (Object, error) {
	res, err := r.FindStored(ref.Resource)
	if err != nil {
		return nil, err
	}
	if res.View != nil {
		return viewRegistry{r, res}.remove(ctx, ref, opts)
	}
	return r.remove(ctx, res, ref, opts)
}

// remove is Delete for a resource that is not a view.
func (r *Registry) remove(ctx context.Context, res *Resource, ref client.Ref,
	opts metav1.DeleteOptions) (Object, error) {
	if res.OrphanWarning != "" && opts.PropagationPolicy == nil && opts.OrphanDependents == nil {
		Warn(ctx, res.OrphanWarning)
	}
	return r.write(ctx, res, ref.Namespace, ref.Name, func(cur Object) (Object, error) {
		if cur == nil {
			return nil, apierrors.NewNotFound(res.GVR.GroupResource(), ref.Name)
		}
		if err := preconditions(res, cur, opts.Preconditions); err != nil {
			return nil, err
		}
		req := r.request(ctx, admission.Delete, res, "", nil, cur)
		req.Options = &opts
		if err := r.admission.Mutate(ctx, req); err != nil {
			return nil, err
		}
		if err := r.admission.Validate(ctx, req); err != nil {
			return nil, err
		}
		return r.deleted(res, cur, opts), nil
	})
}

func preconditions(res *Resource, cur Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
		return nil
	case p.UID != nil && *p.UID != cur.GetUID():
		return apierror.Conflict(res, cur.GetName(), fmt.Sprintf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, cur.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != cur.GetResourceVersion():
		return apierror.Conflict(res, cur.GetName(), fmt.Sprintf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion,
			cur.GetResourceVersion()))
	}
	return nil
}

// deleted returns the object that replaces cur: nil if the deletion is immediate, cur if nothing changes, otherwise a
// copy with a deletionTimestamp.
func (r *Registry) deleted(res *Resource, cur Object, opts metav1.DeleteOptions) Object {
	grace := res.GraceFor(cur, opts.GracePeriodSeconds)
	finalizers := res.FinalizersFor(cur, opts)
	blocked := len(finalizers) > 0 || (res.BlocksDeletion != nil && res.BlocksDeletion(cur))
	if grace == 0 && !blocked {
		return nil
	}
	next := cur.DeepCopyObject().(Object)
	next.SetFinalizers(finalizers)
	if schedule(next, cur, grace, r.now()) && next.GetGeneration() > 0 {
		next.SetGeneration(next.GetGeneration() + 1)
	}
	if res.Prepare != nil {
		res.Prepare(next, cur, "delete")
	}
	return next
}

// schedule sets next's deletionTimestamp to the end of the grace period, and reports whether it changed. A repeated
// deletion can only shorten the grace period.
func schedule(next, cur Object, grace int64, now metav1.Time) bool {
	when := cur.GetDeletionTimestamp()
	if when == nil {
		setDeletion(next, now.Add(time.Duration(grace)*time.Second), grace)
		return true
	}
	had := int64(0)
	if g := cur.GetDeletionGracePeriodSeconds(); g != nil {
		had = *g
	}
	if grace >= had {
		return false
	}
	firstRequest := when.Add(-time.Duration(had) * time.Second)
	due := firstRequest.Add(time.Duration(grace) * time.Second)
	if due.Before(now.Time) {
		due = now.Time
	}
	setDeletion(next, due, grace)
	return true
}

func setDeletion(obj Object, at time.Time, grace int64) {
	obj.SetDeletionTimestamp(new(metav1.NewTime(at)))
	obj.SetDeletionGracePeriodSeconds(&grace)
}

// deletionDone reports whether obj is being deleted and neither grace period nor finalizers remain.
func deletionDone(res *Resource, obj Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 &&
		(grace == nil || *grace == 0) && (res.BlocksDeletion == nil || !res.BlocksDeletion(obj))
}
