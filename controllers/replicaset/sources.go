package replicaset

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// onSet wakes the set. It removes the expectations of a set that no longer exists or was replaced.
func (r *run) onSet(old, new client.Object) []follow.Key {
	if new == nil {
		r.expected.forget(old.GetUID())
	}
	return follow.OnAny(old, new)
}

// onPod updates the index, lowers expectations, and wakes the sets that own the pod, owned it, or may adopt it. It
// may be called again after an error.
func (r *run) onPod(ctx context.Context, old, new client.Object) ([]follow.Key, error) {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	r.pods.Change(old, new)
	switch {
	case was == nil:
		return r.podAdded(ctx, is)
	case is == nil:
		return r.podDeleted(ctx, was)
	default:
		return r.podUpdated(ctx, was, is)
	}
}

func (r *run) podAdded(ctx context.Context, pod *corev1.Pod) ([]follow.Key, error) {
	if pod.DeletionTimestamp != nil {
		return r.podDeleted(ctx, pod) // the deletion is known only from a relist
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return r.candidates(ctx, pod)
	}
	keys, err := r.owner(ctx, pod.Namespace, owner)
	if err == nil {
		r.expected.created(owner.UID, 1)
	}
	return keys, err
}

func (r *run) podDeleted(ctx context.Context, pod *corev1.Pod) ([]follow.Key, error) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil, nil
	}
	r.expected.deleted(owner.UID, podKey(pod))
	return r.owner(ctx, pod.Namespace, owner)
}

func (r *run) podUpdated(ctx context.Context, was, is *corev1.Pod) (keys []follow.Key, err error) {
	former, owner := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(is)
	if former != nil && (owner == nil || owner.UID != former.UID) {
		if keys, err = r.owner(ctx, was.Namespace, former); err != nil {
			return nil, err
		}
	}
	var more []follow.Key
	switch {
	case is.DeletionTimestamp != nil:
		// The requested deletion is observed: the replacement need not wait for the grace period.
		more, err = r.podDeleted(ctx, is)
	case owner != nil:
		more, err = r.owner(ctx, is.Namespace, owner)
	case !maps.Equal(was.Labels, is.Labels) || former != nil:
		more, err = r.candidates(ctx, is)
	}
	return append(keys, more...), err
}

// owner returns the key of the set that a reference names.
func (r *run) owner(ctx context.Context, namespace string, ref *metav1.OwnerReference) ([]follow.Key, error) {
	return r.kind.owner(ctx, r.deps.Client, namespace, ref)
}

// candidates returns the keys of the sets that would adopt an orphan.
func (r *run) candidates(ctx context.Context, pod *corev1.Pod) ([]follow.Key, error) {
	return r.kind.candidates(ctx, r.deps.Client, pod)
}
