package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
)

// Delete implements client.Client: it marks the object for deletion, or removes it if nothing
// holds it. It returns the stored object, or the last state of a removed one.
func (r *Registry) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (Object, error) {
	res, err := r.stored(ref.Resource)
	if err != nil {
		return nil, err
	}
	if res.View != nil {
		return r.deleteView(ctx, res, ref, opts)
	}
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
		if err := r.mayGo(ctx, res, cur, &opts); err != nil {
			return nil, err
		}
		return r.deleted(res, cur, opts), nil
	})
}

// mayGo runs admission for a deletion.
func (r *Registry) mayGo(ctx context.Context, res *Resource, cur Object, opts *metav1.DeleteOptions) error {
	admitted := r.request(ctx, admission.Delete, res, "", nil, cur)
	admitted.Options = opts
	if err := r.admission.Mutate(ctx, admitted); err != nil {
		return err
	}
	return r.admission.Validate(ctx, admitted)
}

func preconditions(res *Resource, cur Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
		return nil
	case p.UID != nil && *p.UID != cur.GetUID():
		return errConflict(res, cur.GetName(), fmt.Sprintf(
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, cur.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != cur.GetResourceVersion():
		return errConflict(res, cur.GetName(), fmt.Sprintf(
			"Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, cur.GetResourceVersion()))
	}
	return nil
}

// deleted returns what replaces cur: nil if it is removed at once, cur if nothing changes, else
// cur with its deletion scheduled.
func (r *Registry) deleted(res *Resource, cur Object, opts metav1.DeleteOptions) Object {
	grace := graceFor(res, cur, opts.GracePeriodSeconds)
	finalizers := finalizersFor(res, cur, opts)
	held := len(finalizers) > 0 || (res.Held != nil && res.Held(cur))
	if grace == 0 && !held {
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

// schedule sets next's deletionTimestamp to grace seconds after the first request, and reports
// whether it changed. A repeated request can only shorten the grace period.
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
	asked := when.Add(-time.Duration(had) * time.Second)
	due := asked.Add(time.Duration(grace) * time.Second)
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

// maxGrace is the longest grace period in seconds: a hundred years. A longer one would overflow
// time.Duration.
const maxGrace = 100 * 365 * 24 * 60 * 60

// graceFor returns the grace period of a deletion in seconds.
func graceFor(res *Resource, cur Object, asked *int64) int64 {
	if res.Grace == nil {
		return 0
	}
	if asked != nil && *asked < 0 {
		asked = new(int64(1)) // as upstream does
	}
	if asked == nil && cur.GetDeletionTimestamp() != nil {
		asked = cur.GetDeletionGracePeriodSeconds() // a repeated request without a grace period changes nothing
	}
	return min(res.Grace(cur, asked), maxGrace)
}

// finalizersFor returns the object's finalizers with those of the garbage collector for the
// propagation policy.
func finalizersFor(res *Resource, cur Object, opts metav1.DeleteOptions) []string {
	policy := opts.PropagationPolicy
	if policy == nil && opts.OrphanDependents != nil { // the deprecated option
		policy = new(metav1.DeletePropagationBackground)
		if *opts.OrphanDependents {
			policy = new(metav1.DeletePropagationOrphan)
		}
	}
	out := slices.Clone(cur.GetFinalizers())
	if policy == nil && res.Orphans && !slices.ContainsFunc(out, forDependents) {
		policy = new(metav1.DeletePropagationOrphan)
	}
	if policy == nil {
		return out
	}
	out = slices.DeleteFunc(out, forDependents)
	switch *policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	return out
}

// forDependents reports whether the finalizer is the garbage collector's.
func forDependents(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// deletionDone reports whether obj is being deleted and nothing holds it.
func deletionDone(res *Resource, obj Object) bool {
	grace := obj.GetDeletionGracePeriodSeconds()
	return obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 &&
		(grace == nil || *grace == 0) && (res.Held == nil || !res.Held(obj))
}
