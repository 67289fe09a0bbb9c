package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
)

// runtimeClass sets the overhead and the node selection of a new pod from its RuntimeClass. Users must not set an
// overhead themselves.
func runtimeClass(c client.Client) admission.Plugin {
	return admission.Plugin{
		Name: "RuntimeClass",
		Mutate: func(ctx context.Context, r *admission.Request) error {
			pod := newPod(r)
			if pod == nil || pod.Spec.RuntimeClassName == nil {
				return nil
			}
			class, err := client.Get[*nodev1.RuntimeClass](ctx, c, "", *pod.Spec.RuntimeClassName)
			if apierrors.IsNotFound(err) {
				return r.Forbid(fmt.Errorf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName))
			}
			if err != nil {
				return err
			}
			if err := applyRuntimeClass(pod, class); err != nil {
				return r.Forbid(err)
			}
			return nil
		},
		Validate: func(_ context.Context, r *admission.Request) error {
			if pod := newPod(r); pod != nil && pod.Spec.RuntimeClassName == nil && len(pod.Spec.Overhead) > 0 {
				return r.Forbid(errors.New("pod rejected: Overhead set without corresponding RuntimeClass defined Overhead"))
			}
			return nil
		},
	}
}

// newPod returns the pod that the request creates, or nil.
func newPod(r *admission.Request) *corev1.Pod {
	pod, ok := r.Object.(*corev1.Pod)
	if !ok || r.Operation != admission.Create || r.Subresource != "" {
		return nil
	}
	return pod
}

// applyRuntimeClass applies the class to the pod.
func applyRuntimeClass(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	var overhead corev1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if pod.Spec.Overhead != nil && !equality.Semantic.DeepEqual(pod.Spec.Overhead, overhead) {
		return errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	}
	pod.Spec.Overhead = overhead.DeepCopy()
	if class.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		value := class.Scheduling.NodeSelector[key]
		if has, ok := pod.Spec.NodeSelector[key]; ok && has != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key,
				value, key, has)
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations,
			func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, *t.DeepCopy())
		}
	}
	return nil
}
