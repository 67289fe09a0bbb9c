package garbagecollector

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

const parallel = 10 // dependents released concurrently

// ownership contains an object's owners, by their state.
type ownership struct {
	existing int         // number of owners that exist, or whose kind is not served
	missing  []types.UID // deleted, or replaced by another object of the same name
	waiting  []types.UID // in foreground deletion: they wait for their dependents
}

func (r *run) ownership(ctx context.Context, obj client.Object) (ownership, error) {
	var o ownership
	for _, ref := range obj.GetOwnerReferences() {
		owner, ok := r.owner(obj.GetNamespace(), ref)
		if !ok {
			o.existing++
			continue
		}
		found, err := r.get(ctx, owner)
		switch {
		case err != nil:
			return o, err
		case found == nil:
			o.missing = append(o.missing, ref.UID)
		case found.GetDeletionTimestamp() != nil && has(found, metav1.FinalizerDeleteDependents):
			o.waiting = append(o.waiting, ref.UID)
		default:
			o.existing++
		}
	}
	return o, nil
}

// collect deletes an object if no owner is left. If one is, it removes the references to the others.
func (r *run) collect(ctx context.Context, i item, obj client.Object) error {
	for _, ref := range obj.GetOwnerReferences() {
		// References to another namespace are ignored: the object is deleted with its last valid owner.
		if ns, ok := r.index.namespace(ref.UID); ok && ns != obj.GetNamespace() {
			r.events.Eventf(obj, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
				"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
				ref.APIVersion, ref.Kind, obj.GetNamespace(), ref.Name, ref.UID, obj.GetNamespace())
		}
	}
	o, err := r.ownership(ctx, obj)
	if err != nil {
		return err
	}
	ended := slices.Concat(o.missing, o.waiting)
	switch {
	case len(ended) == 0:
		return nil
	case o.existing > 0:
		return r.disown(ctx, i, ended)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case len(o.waiting) > 0 && r.index.has(i.uid), has(obj, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case has(obj, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	}
	return r.delete(ctx, i, obj, policy)
}

// delete deletes the object in the state that was examined. An object that has changed since is examined again.
func (r *run) delete(ctx context.Context, i item, obj client.Object, policy metav1.DeletionPropagation) error {
	_, err := r.deps.Client.Delete(ctx, i.ref(), metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: new(obj.GetUID()), ResourceVersion: new(obj.GetResourceVersion())},
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		r.deps.Log.Debug("owners no longer exist, object deleted", zap.String("resource", i.resource.Resource),
			zap.String("namespace", i.namespace), zap.String("name", i.name), zap.String("uid", string(i.uid)))
	}
	return err
}

// errOther stops an update of an object that was replaced.
var errOther = errors.New("object was replaced by another of the same name")

// update updates the object of i. It returns nil if the object no longer exists.
func (r *run) update(ctx context.Context, i item, change func(client.Object)) error {
	_, err := r.deps.Client.Update(ctx, i.ref(), func(cur client.Object) (client.Object, error) {
		if cur.GetUID() != i.uid {
			return nil, errOther
		}
		next := cur.DeepCopyObject().(client.Object)
		change(next)
		return next, nil
	})
	if apierrors.IsNotFound(err) || errors.Is(err, errOther) {
		return nil
	}
	return err
}

// disown removes owners from an object.
func (r *run) disown(ctx context.Context, i item, owners []types.UID) error {
	return r.update(ctx, i, func(obj client.Object) {
		obj.SetOwnerReferences(
			slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
				return slices.Contains(owners, ref.UID)
			}))
	})
}

// unfinalize removes a finalizer from an object.
func (r *run) unfinalize(ctx context.Context, i item, finalizer string) error {
	return r.update(ctx, i, func(obj client.Object) {
		obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer }))
	})
}

// foreground removes the finalizer of an owner when no dependent blocks its deletion. When the deletion began, the
// dependents were woken, or their watch events wake them.
func (r *run) foreground(ctx context.Context, owner item) error {
	blocked := r.index.blocked(owner.uid)
	if !blocked {
		err := r.eachDependent(ctx, owner, func(_ client.Kind, all []client.Object) error {
			blocked = blocked || slices.ContainsFunc(all, func(obj client.Object) bool { return blocks(owner.uid, obj) })
			return nil
		})
		if err != nil {
			return err
		}
	}
	if blocked {
		r.loop.AddAfter(cycleDelay, findCycles)
		return nil // each dependent wakes the owner when it is deleted
	}
	return r.unfinalize(ctx, owner, metav1.FinalizerDeleteDependents)
}

// orphan removes the owner from its dependents, then removes the owner's finalizer.
func (r *run) orphan(ctx context.Context, owner item) error {
	err := r.eachDependent(ctx, owner, func(kind client.Kind, all []client.Object) error {
		return errors.Join(follow.Each(parallel, all, func(obj client.Object) error {
			if !owns(owner.uid, obj) {
				return nil
			}
			return r.disown(ctx, itemOf(kind.Resource, obj), []types.UID{owner.uid})
		})...)
	})
	if err != nil {
		return err
	}
	return r.unfinalize(ctx, owner, metav1.FinalizerOrphanDependents)
}

// eachDependent calls f with all objects of each kind that may depend on the owner. It lists them from the API, because
// the index may lag behind (watches of different kinds are not ordered): a missed dependent would be deleted instead of
// orphaned, or outlive its owner.
func (r *run) eachDependent(
	ctx context.Context, owner item, f func(kind client.Kind, all []client.Object) error,
) error {
	for _, kind := range r.kinds {
		if owner.namespace != "" && !kind.Namespaced || kind.Resource == client.Events {
			continue
		}
		all, _, err := r.deps.Client.List(ctx, client.Selector{Resource: kind.Resource, Namespace: owner.namespace})
		if apierrors.IsNotFound(err) {
			continue // a custom kind that is no longer served
		}
		if err == nil {
			err = f(kind, all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func owns(owner types.UID, obj client.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == owner })
}

// blocks reports whether the object blocks the foreground deletion of an owner.
func blocks(owner types.UID, obj client.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	})
}
