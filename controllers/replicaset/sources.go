package replicaset

import (
	"context"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/controllers/loop"
)

// onReplicaSet wakes the ReplicaSet itself. One that went away, perhaps for
// another of its name, leaves no expectations behind.
func (r *run) onReplicaSet(old, new client.Object) []loop.Key {
	if new == nil {
		r.expected.forget(loop.KeyOf(old))
	}
	return loop.OnAny(old, new)
}

// onPod keeps the index, lowers expectations, and wakes the ReplicaSets whose
// pods these are or may become.
func (r *run) onPod(old, new client.Object) []loop.Key {
	was, _ := old.(*corev1.Pod)
	is, _ := new.(*corev1.Pod)
	r.pods.change(was, is)
	switch {
	case was == nil:
		return r.podAdded(is)
	case is == nil:
		return r.podDeleted(was)
	default:
		return r.podUpdated(was, is)
	}
}

func (r *run) podAdded(pod *corev1.Pod) []loop.Key {
	if pod.DeletionTimestamp != nil {
		return r.podDeleted(pod) // known only since a relist
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		keys := r.owner(pod.Namespace, owner)
		for _, key := range keys {
			r.expected.created(key, 1)
		}
		return keys
	}
	return r.candidates(pod)
}

func (r *run) podDeleted(pod *corev1.Pod) []loop.Key {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil
	}
	keys := r.owner(pod.Namespace, owner)
	for _, key := range keys {
		r.expected.deleted(key, podKey(pod))
	}
	return keys
}

func (r *run) podUpdated(was, is *corev1.Pod) []loop.Key {
	if is.DeletionTimestamp != nil {
		// A graceful deletion that was asked for has been seen: no need to wait for
		// the grace period to replace the pod.
		return append(r.podDeleted(is), r.formerOwner(was, is)...)
	}
	keys := r.formerOwner(was, is)
	if owner := metav1.GetControllerOfNoCopy(is); owner != nil {
		return append(keys, r.owner(is.Namespace, owner)...)
	}
	if !maps.Equal(was.Labels, is.Labels) || metav1.GetControllerOfNoCopy(was) != nil {
		keys = append(keys, r.candidates(is)...)
	}
	return keys
}

// formerOwner is the controller that a pod has no more.
func (r *run) formerOwner(was, is *corev1.Pod) []loop.Key {
	before, after := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(is)
	if before == nil || (after != nil && after.UID == before.UID) {
		return nil
	}
	return r.owner(was.Namespace, before)
}

// owner finds the ReplicaSet that a reference means; its UID must be the one.
func (r *run) owner(namespace string, ref *metav1.OwnerReference) []loop.Key {
	if ref.Kind != "ReplicaSet" {
		return nil
	}
	rs, err := client.Get[*appsv1.ReplicaSet](context.Background(), r.deps.Client, namespace, ref.Name)
	if err != nil || rs.UID != ref.UID {
		return nil
	}
	return []loop.Key{loop.KeyOf(rs)}
}

// candidates are the ReplicaSets that would adopt an orphan.
func (r *run) candidates(pod *corev1.Pod) []loop.Key {
	if len(pod.Labels) == 0 {
		return nil
	}
	sets, err := client.List[*appsv1.ReplicaSet](context.Background(), r.deps.Client, client.Selector{Namespace: pod.Namespace})
	if err != nil {
		return nil
	}
	var keys []loop.Key
	for _, rs := range sets {
		if matches(rs, pod.Labels) {
			keys = append(keys, loop.KeyOf(rs))
		}
	}
	return keys
}
