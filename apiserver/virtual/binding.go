package virtual

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

// pods answers POSTs to subresources of pods: bindings, also at their old path, and evictions.
func (v *virtual) pods() Answers {
	return Answers{
		client.Bindings:            {Create: v.bindNamed},
		podSubresource("binding"):  {Create: v.bind},
		podSubresource("eviction"): {Create: v.evict},
	}
}

func podSubresource(subresource string) schema.GroupVersionResource {
	return client.Pods.GroupVersion().WithResource(client.Pods.Resource + "/" + subresource)
}

func bindingKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Binding") }

// bindNamed is bind for a path without the pod's name, which is in the body.
func (v *virtual) bindNamed(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error) {
	if obj.GetName() == "" {
		return nil, apierrors.NewInvalid(bindingKind().GroupKind(), "",
			field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")})
	}
	return v.bind(ctx,
		client.Ref{Resource: client.Pods, Namespace: ref.Namespace, Name: obj.GetName(), Subresource: "binding"}, obj)
}

// bind binds a pod to the node of the binding's target.
func (v *virtual) bind(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error) {
	b := obj.(*corev1.Binding)
	if errs := validateTarget(&b.Target, field.NewPath("target")); len(errs) > 0 {
		return nil, apierrors.NewInvalid(bindingKind().GroupKind(), b.Name, errs)
	}
	_, err := v.API.Update(ctx, ref, func(cur kind.Object) (kind.Object, error) {
		pod := cur.DeepCopyObject().(*corev1.Pod)
		pod.Spec.NodeName, pod.Annotations = b.Target.Name, b.Annotations
		pod.UID = b.UID
		return pod, nil
	})
	return codec.Success(http.StatusCreated, nil), err
}

// validateTarget requires a node (upstream: validation.ValidatePodBinding).
func validateTarget(target *corev1.ObjectReference, path *field.Path) (errs field.ErrorList) {
	if target.Kind != "" && target.Kind != "Node" {
		errs = append(errs, field.NotSupported(path.Child("kind"), target.Kind, []string{"Node", "<empty>"}))
	}
	if target.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	return errs
}

// evict deletes a pod if its PodDisruptionBudget allows it.
func (v *virtual) evict(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error) {
	_, err := v.API.Update(ctx, ref, func(kind.Object) (kind.Object, error) { return obj, nil })
	return codec.Success(http.StatusCreated, nil), err
}
