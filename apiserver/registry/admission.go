package registry

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
)

// admit asks each admission in turn about a new object; they may fill it in or
// refuse it.
func (r *Registry) admit(ctx context.Context, res *Resource, obj Object) error {
	for _, ask := range []func(context.Context, *Resource, Object) error{
		r.namespaceLifecycle,
		r.priority,
	} {
		if err := ask(ctx, res, obj); err != nil {
			return err
		}
	}
	return nil
}

// namespaceLifecycle lets nothing into a namespace that is not there or on its
// way out.
func (r *Registry) namespaceLifecycle(ctx context.Context, res *Resource, obj Object) error {
	if !res.Namespaced || obj.GetNamespace() == "" { // an empty one fails validation
		return nil
	}
	ns, err := client.Get[*corev1.Namespace](ctx, r, "", obj.GetNamespace())
	if err != nil {
		return err
	}
	if ns.DeletionTimestamp == nil {
		return nil
	}
	refused := apierrors.NewForbidden(res.GVR.GroupResource(), nameOr(obj),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", ns.Name))
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", ns.Name), Field: "metadata.namespace"})
	return refused
}

// priority resolves a pod's priority class, or takes the default one.
func (r *Registry) priority(ctx context.Context, res *Resource, obj Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	class, err := r.priorityClass(ctx, pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return apierrors.NewForbidden(res.GVR.GroupResource(), nameOr(obj),
			fmt.Errorf("no PriorityClass with name %s was found", pod.Spec.PriorityClassName))
	}
	if err != nil {
		return err
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if asked := pod.Spec.Priority; asked != nil && *asked != value {
		return apierrors.NewForbidden(res.GVR.GroupResource(), nameOr(obj),
			fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *asked, value))
	}
	pod.Spec.Priority = &value
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = &policy
	}
	return nil
}

// priorityClass is the named class; without a name the global default with the
// lowest value, or nil.
func (r *Registry) priorityClass(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		return client.Get[*schedulingv1.PriorityClass](ctx, r, "", name)
	}
	classes, err := client.List[*schedulingv1.PriorityClass](ctx, r, client.Selector{})
	if err != nil {
		return nil, err
	}
	var chosen *schedulingv1.PriorityClass
	for _, c := range classes {
		if c.GlobalDefault && (chosen == nil || c.Value < chosen.Value) {
			chosen = c
		}
	}
	return chosen, nil
}
