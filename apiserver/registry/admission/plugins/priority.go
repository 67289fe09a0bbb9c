package plugins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// priority sets the priority of a new pod from its PriorityClass or the default class. An update without a priority
// keeps it.
func priority(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "Priority", Mutate: func(ctx context.Context, r *admission.Request) error {
		pod, ok := r.Object.(*corev1.Pod)
		if !ok || r.Subresource != "" {
			return nil
		}
		switch r.Operation {
		case admission.Create:
			return resolvePriority(ctx, c, r, pod)
		case admission.Update:
			next, old := &pod.Spec, &r.Old.(*corev1.Pod).Spec
			kind.SetIfZero(&next.Priority, old.Priority)
			kind.SetIfZero(&next.PreemptionPolicy, old.PreemptionPolicy)
		}
		return nil
	}}
}

func resolvePriority(ctx context.Context, c client.Client, r *admission.Request, pod *corev1.Pod) error {
	class, err := priorityClass(ctx, c, pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return r.Forbid(fmt.Errorf("no PriorityClass with name %s was found", pod.Spec.PriorityClassName))
	}
	if err != nil {
		return err
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		policy = ptr.Deref(class.PreemptionPolicy, policy)
	}
	if requested := pod.Spec.Priority; requested != nil && *requested != value {
		return r.Forbid(
			fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
				"priority admission controller computed %d from the given PriorityClass name", *requested, value))
	}
	pod.Spec.Priority = &value
	kind.SetIfNil(&pod.Spec.PreemptionPolicy, policy)
	return nil
}

// priorityClass returns the named class. Without a name it returns the global default with the lowest value, or nil.
func priorityClass(ctx context.Context, c client.Client, name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		return client.Get[*schedulingv1.PriorityClass](ctx, c, "", name)
	}
	classes, err := client.List[*schedulingv1.PriorityClass](ctx, c, client.Selector{})
	if err != nil {
		return nil, err
	}
	var chosen *schedulingv1.PriorityClass
	for _, class := range classes {
		if class.GlobalDefault && (chosen == nil || class.Value < chosen.Value) {
			chosen = class
		}
	}
	return chosen, nil
}
