package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/kind"
)

// subresources are what is served below a pod.
func subresources() []kind.Subresource {
	binding := kind.Posted("binding", corev1.SchemeGroupVersion.WithKind("Binding"), func() kind.Object { return new(corev1.Binding) })
	binding.Merge = mergeBinding
	return append(kind.Parts("status"),
		kind.Subresource{Name: "ephemeralcontainers", Part: true,
			Reset: fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("spec", "ephemeralContainers"))},
		kind.Subresource{Name: "resize", Part: true, Reset: fieldpath.NewIncludeMatcherFilter(
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

// mergeBinding lets a pod onto its node once: of what the client wants it takes the
// node and the annotations.
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
