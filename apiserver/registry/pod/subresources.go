package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

func subresources() []kind.Subresource {
	binding := kind.Posted("binding", corev1.SchemeGroupVersion.WithKind("Binding"),
		func() kind.Object { return new(corev1.Binding) })
	binding.Merge, binding.Validate = mergeBinding, validateBinding
	return append(kind.Parts("status"),
		kind.Subresource{Name: "ephemeralcontainers", Part: true, Containers: true,
			Prepare: partPrepare(func(next, sent *corev1.PodSpec) {
				next.EphemeralContainers = sent.EphemeralContainers
			}),
			Validate: partValidate(ephemeralUpdate),
			Reset:    fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("spec", "ephemeralContainers"))},
		kind.Subresource{Name: "resize", Part: true, Containers: true, Amounts: true,
			Prepare: partPrepare(copyResources), Validate: partValidate(resizeUpdate), Reset: fieldpath.NewIncludeMatcherFilter(
				fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resources"),
				fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resizePolicy"),
				fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resources"),
				fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resizePolicy"))},
		kind.Subresource{Name: "log", Verbs: []string{"get"}, Stream: true},
		kind.Connection("exec", "PodExecOptions"),
		kind.Connection("attach", "PodAttachOptions"),
		kind.Connection("portforward", "PodPortForwardOptions"),
		kind.Proxy("Pod"),
		binding,
	)
}

// partPrepare returns the Prepare of a subresource. take copies the fields that the subresource changes from the
// client's spec.
func partPrepare(take func(next, sent *corev1.PodSpec)) func(next, cur kind.Object) {
	return func(next, cur kind.Object) {
		pod, old := next.(*corev1.Pod), cur.(*corev1.Pod)
		sent := pod.Spec
		old.DeepCopyInto(pod)
		take(&pod.Spec, &sent)
		podDefault(pod)
		if !equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
			pod.Generation = old.Generation + 1
		}
	}
}

// partValidate returns the Validate of a subresource that changes the spec.
func partValidate(
	errs func(pod, old *corev1.Pod, spec *field.Path) field.ErrorList) func(next, cur kind.Object) field.ErrorList {
	return func(next, cur kind.Object) field.ErrorList {
		return errs(next.(*corev1.Pod), cur.(*corev1.Pod), field.NewPath("spec"))
	}
}

func validateBinding(next, _ kind.Object) field.ErrorList {
	node := next.(*corev1.Pod).Spec.NodeName
	return check.Invalid(field.NewPath("spec", "nodeName"), node, check.Subdomain(node))
}

// mergeBinding assigns a pod to a node. It uses only the node and the annotations of the Binding. It returns a conflict
// if the pod already has a node, has scheduling gates or is being deleted.
func mergeBinding(wanted, stored kind.Object, now metav1.Time) error {
	next, cur := wanted.(*corev1.Pod), stored.(*corev1.Pod)
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(client.Pods.GroupResource(), cur.Name, fmt.Errorf(format, args...))
	}
	switch target := next.Spec.NodeName; {
	case target == "":
		return apierrors.NewBadRequest("a binding needs the name of a node")
	case cur.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", cur.Name)
	case cur.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", cur.Name, cur.Spec.NodeName)
	case len(cur.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", cur.Name)
	}
	annotations, target := next.Annotations, next.Spec.NodeName
	cur.DeepCopyInto(next)
	for k, v := range annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, k, v)
	}
	Bind(next, target, now)
	return nil
}
