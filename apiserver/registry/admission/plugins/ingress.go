package plugins

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/network"
)

// defaultIngressClass sets the default class of an Ingress without one: of several the newest,
// then the first by name.
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
		if class := newestDefault(classes); class != nil {
			ingress.Spec.IngressClassName = new(class.Name)
		}
		return nil
	}}
}

// newestDefault returns the newest default class, then the first by name, as upstream does.
func newestDefault(classes []*networkingv1.IngressClass) *networkingv1.IngressClass {
	var chosen *networkingv1.IngressClass
	for _, class := range classes {
		if class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true" {
			continue
		}
		if chosen == nil || before(class, chosen) {
			chosen = class
		}
	}
	return chosen
}

func before(a, b *networkingv1.IngressClass) bool {
	if at := a.CreationTimestamp; !at.Equal(&b.CreationTimestamp) {
		return at.After(b.CreationTimestamp.Time)
	}
	return a.Name < b.Name
}
