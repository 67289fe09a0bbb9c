package plugins

import (
	"cmp"
	"context"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/network"
)

// defaultIngressClass sets the default class of an Ingress without one. As upstream, of several default classes it
// takes the newest, then the first by name.
func defaultIngressClass(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "DefaultIngressClass", Mutate: func(ctx context.Context, r *admission.Request) error {
		ingress, ok := r.Object.(*networkingv1.Ingress)
		if !ok || r.Operation != admission.Create || r.Subresource != "" || ingress.Spec.IngressClassName != nil {
			return nil
		}
		if _, named := ingress.Annotations[network.IngressClassAnnotation]; named {
			return nil
		}
		classes, err := client.List[*networkingv1.IngressClass](ctx, c, client.Selector{})
		if err != nil {
			return err
		}
		classes = slices.DeleteFunc(classes, func(class *networkingv1.IngressClass) bool {
			return class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true"
		})
		if len(classes) > 0 {
			chosen := slices.MinFunc(classes, func(a, b *networkingv1.IngressClass) int {
				return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
			})
			ingress.Spec.IngressClassName = new(chosen.Name)
		}
		return nil
	}}
}
