package network

import (
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// maxController is the maximum length of a controller name (upstream: maxLenIngressClassController).
const maxController = 250

func ingressClassResource() kind.Resource {
	return kind.Resource{
		GVR:     client.IngressClasses,
		Kind:    "IngressClass",
		New:     func() kind.Object { return new(networkingv1.IngressClass) },
		Default: ingressClassDefault,
		Prepare: kind.SpecOnly(func(obj kind.Object) *networkingv1.IngressClassSpec {
			return &obj.(*networkingv1.IngressClass).Spec
		}, ingressClassDefault),
		Validate: ingressClassValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("Controller", "The controller that serves Ingresses of this class.",
				func(c *networkingv1.IngressClass) string { return c.Spec.Controller }),
			table.Text("Parameters", "Reference to the parameters of the controller.",
				func(c *networkingv1.IngressClass) string {
					switch p := c.Spec.Parameters; {
					case p == nil:
						return table.None
					case p.APIGroup != nil:
						return p.Kind + "." + *p.APIGroup + "/" + p.Name
					default:
						return p.Kind + "/" + p.Name
					}
				}),
			table.Age(),
		},
	}
}

func ingressClassDefault(obj kind.Object) {
	if p := obj.(*networkingv1.IngressClass).Spec.Parameters; p != nil {
		kind.SetIfNil(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

func ingressClassValidate(next, cur kind.Object, _ string) field.ErrorList {
	spec, path := &next.(*networkingv1.IngressClass).Spec, field.NewPath("spec")
	var errs field.ErrorList
	controller := path.Child("controller")
	if cur != nil {
		errs = check.Immutable(controller, spec.Controller, cur.(*networkingv1.IngressClass).Spec.Controller)
	}
	if len(spec.Controller) > maxController {
		errs = append(errs, field.TooLong(controller, "", maxController))
	}
	if spec.Controller == "" {
		errs = append(errs, field.Required(controller, ""))
	} else {
		errs = append(errs, validation.IsDomainPrefixedPath(controller, spec.Controller)...)
	}
	p, at := spec.Parameters, path.Child("parameters", "namespace")
	if p == nil {
		return errs
	}
	errs = append(errs, typedReference(p.APIGroup, p.Kind, p.Name, path.Child("parameters"))...)
	switch *p.Scope { // it has its default
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(at, "`parameters.scope` is set to 'Cluster'"))
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(at, "`parameters.scope` is set to 'Namespace'"))
		}
		errs = append(errs, check.Invalid(at, *p.Namespace, apivalidation.ValidateNamespaceName(*p.Namespace, false))...)
	default:
		errs = append(errs, check.NilOr(path.Child("parameters", "scope"), p.Scope,
			networkingv1.IngressClassParametersReferenceScopeCluster,
			networkingv1.IngressClassParametersReferenceScopeNamespace)...)
	}
	return errs
}
