package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/kind"
)

// namespaceLifecycle lets nothing into a namespace that is not there or on its
// way out.
func namespaceLifecycle(c client.Client) Plugin {
	return Plugin{Name: "NamespaceLifecycle", Mutate: func(ctx context.Context, r *Request) error {
		if r.Operation != Create || r.Subresource != "" {
			return nil
		}
		return inLivingNamespace(ctx, c, r.Resource, r.Object)
	}}
}

func inLivingNamespace(ctx context.Context, c client.Client, res *kind.Resource, obj kind.Object) error {
	if !res.Namespaced || obj.GetNamespace() == "" { // an empty one fails validation
		return nil
	}
	ns, err := client.Get[*corev1.Namespace](ctx, c, "", obj.GetNamespace())
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
func priority(c client.Client) Plugin {
	return Plugin{Name: "Priority", Mutate: func(ctx context.Context, r *Request) error {
		pod, ok := r.Object.(*corev1.Pod)
		if !ok || r.Operation != Create || r.Subresource != "" {
			return nil
		}
		return resolvePriority(ctx, c, r.Resource, pod)
	}}
}

func resolvePriority(ctx context.Context, c client.Client, res *kind.Resource, pod *corev1.Pod) error {
	class, err := priorityClass(ctx, c, pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return apierrors.NewForbidden(res.GVR.GroupResource(), nameOr(pod),
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
		return apierrors.NewForbidden(res.GVR.GroupResource(), nameOr(pod),
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

// nameOr is the object's name for a message, or the beginning of it.
func nameOr(obj metav1.Object) string {
	if obj.GetName() == "" {
		return obj.GetGenerateName()
	}
	return obj.GetName()
}
