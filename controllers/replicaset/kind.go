package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// set is a stored object of either kind, with its spec and status in the form of a ReplicaSet.
type set struct {
	*appsv1.ReplicaSet
	stored client.Object
}

// kind contains the differences between ReplicaSets and ReplicationControllers.
type kind struct {
	name, component string // of the controller
	gvk             schema.GroupVersionKind
	resource        schema.GroupVersionResource
	terminating     bool // its status counts terminating pods

	get  func(ctx context.Context, c client.Client, key follow.Key) (set, error)
	list func(ctx context.Context, c client.Client, namespace string) ([]set, error)
	// setStatus writes the status of the object, unless it is gone.
	setStatus func(ctx context.Context, c client.Client, s set, change func(cur *appsv1.ReplicaSetStatus)) error
	// onPod updates the index, and wakes the objects that own the pod, owned it, or may adopt it.
	onPod func(c client.Client, pods *owned.Index[*corev1.Pod]) func(ctx context.Context, old, new client.Object) (
		[]follow.Key, error)
}

// replicaSets is the kind ReplicaSet.
func replicaSets() kind {
	k := kindOf(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), client.ReplicaSets,
		func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
		func(rs *appsv1.ReplicaSet, next appsv1.ReplicaSetStatus) { rs.Status = next })
	k.name, k.component, k.terminating = Name, Component, true
	return k
}

// replicationControllers is the kind ReplicationController, which differs only in the types of its fields.
func replicationControllers() kind {
	k := kindOf(corev1.SchemeGroupVersion.WithKind("ReplicationController"), client.ReplicationControllers, shape,
		func(rc *corev1.ReplicationController, next appsv1.ReplicaSetStatus) { rc.Status = unshaped(next) })
	k.name, k.component = ReplicationControllers, ReplicationControllersComponent
	return k
}

// kindOf derives the functions of a kind from the shape of its objects.
func kindOf[T client.Object](gvk schema.GroupVersionKind, resource schema.GroupVersionResource,
	shape func(T) *appsv1.ReplicaSet, write func(T, appsv1.ReplicaSetStatus)) kind {
	return kind{
		gvk: gvk, resource: resource,
		get: func(ctx context.Context, c client.Client, key follow.Key) (set, error) {
			obj, err := client.Get[T](ctx, c, key.Namespace, key.Name)
			if err != nil {
				return set{}, err
			}
			return set{shape(obj), obj}, nil
		},
		list: func(ctx context.Context, c client.Client, namespace string) ([]set, error) {
			all, err := client.List[T](ctx, c, client.Selector{Namespace: namespace})
			out := make([]set, len(all))
			for i, obj := range all {
				out[i] = set{shape(obj), obj}
			}
			return out, err
		},
		setStatus: func(ctx context.Context, c client.Client, s set, change func(*appsv1.ReplicaSetStatus)) error {
			return owned.UpdateStatus(ctx, c, s.stored.(T), func(cur T) {
				status := shape(cur).Status
				change(&status)
				write(cur, status)
			})
		},
		onPod: func(c client.Client, pods *owned.Index[*corev1.Pod]) func(ctx context.Context, old, new client.Object) (
			[]follow.Key, error) {
			return owned.Keys(c, pods, gvk.Kind, func(obj T) *metav1.LabelSelector { return shape(obj).Spec.Selector })
		},
	}
}

// shape returns a ReplicationController as a ReplicaSet. Both share their metadata and template.
func shape(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas:     rc.Status.ReadyReplicas,
			AvailableReplicas: rc.Status.AvailableReplicas, ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	if rc.Spec.Template != nil {
		rs.Spec.Template = *rc.Spec.Template
	}
	for _, c := range rc.Status.Conditions {
		rs.Status.Conditions = append(rs.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message,
		})
	}
	return rs
}

// unshaped returns the status of a ReplicationController.
func unshaped(s appsv1.ReplicaSetStatus) corev1.ReplicationControllerStatus {
	out := corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}
	for _, c := range s.Conditions {
		out.Conditions = append(out.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}
