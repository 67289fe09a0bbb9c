package network

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/service"
)

// IngressClassAnnotation is the deprecated annotation that ingressClassName replaces.
const IngressClassAnnotation = "kubernetes.io/ingress.class"

// maxShownHosts is the maximum number of hosts in a cell (upstream: pkg/printers).
const maxShownHosts = 3

func ingressResource() kind.Resource {
	return kind.Resource{
		GVR:          client.Ingresses,
		Kind:         "Ingress",
		Controller:   "ingress",
		Off:          "monopod runs without --ingress, so nothing listens unless you install an ingress controller",
		Namespaced:   true,
		ShortNames:   []string{"ing"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(networkingv1.Ingress) },
		Prepare: kind.SpecAndStatus(func(obj kind.Object) (*networkingv1.IngressSpec, *networkingv1.IngressStatus) {
			ingress := obj.(*networkingv1.Ingress)
			return &ingress.Spec, &ingress.Status
		}, nil),
		Validate: ingressValidate,
		Warnings: func(next, cur kind.Object) []string {
			if _, old := next.GetAnnotations()[IngressClassAnnotation]; cur != nil || !old {
				return nil
			}
			return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead",
				IngressClassAnnotation)}
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Class", "The IngressClass.", func(i *networkingv1.Ingress) string {
				return ptr.Deref(i.Spec.IngressClassName, table.None)
			}),
			table.Text("Hosts", "Hosts of the rules.", ingressHosts),
			table.Text("Address", "Addresses of the load balancer.", func(i *networkingv1.Ingress) string {
				var all []string
				for _, in := range i.Status.LoadBalancer.Ingress {
					all = service.AppendAddress(all, in.IP, in.Hostname)
				}
				return strings.Join(all, ",")
			}),
			table.Text("Ports", "Listening ports.", func(i *networkingv1.Ingress) string {
				if len(i.Spec.TLS) > 0 {
					return "80, 443"
				}
				return "80"
			}),
			table.Age(),
		},
	}
}

// ingressHosts lists the first hosts. As upstream, the number of omitted ones includes rules without a host.
func ingressHosts(i *networkingv1.Ingress) string {
	var all []string
	more := false
	for _, rule := range i.Spec.Rules {
		more = more || len(all) == maxShownHosts
		if !more && rule.Host != "" {
			all = append(all, rule.Host)
		}
	}
	switch {
	case len(all) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(all, ","), len(i.Spec.Rules)-maxShownHosts)
	}
	return strings.Join(all, ",")
}

func ingressValidate(next, cur kind.Object, subresource string) field.ErrorList {
	ingress := next.(*networkingv1.Ingress)
	if subresource == "status" {
		path := field.NewPath("status", "loadBalancer", "ingress")
		var known []string
		for _, in := range cur.(*networkingv1.Ingress).Status.LoadBalancer.Ingress {
			known = append(known, in.IP)
		}
		var errs field.ErrorList
		for i, in := range ingress.Status.LoadBalancer.Ingress {
			errs = append(errs, check.BalancerAddress(path.Index(i), in.IP, in.Hostname, known)...)
		}
		return errs
	}
	errs := ingressSpec(&ingress.Spec, field.NewPath("spec"))
	if class, set := ingress.Annotations[IngressClassAnnotation]; cur == nil && set &&
		ingress.Spec.IngressClassName != nil && class != *ingress.Spec.IngressClassName {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(IngressClassAnnotation), class,
			"must match `ingressClassName` when both are specified"))
	}
	return errs
}
