package network

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"monopod/apiserver/kit/check"
)

func ingressSpec(spec *networkingv1.IngressSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, ingressBackend(spec.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i := range spec.Rules {
		errs = append(errs, ingressRule(&spec.Rules[i], path.Child("rules").Index(i))...)
	}
	for i := range spec.TLS {
		tls, at := &spec.TLS[i], path.Child("tls").Index(i)
		for j, host := range tls.Hosts {
			errs = append(errs, check.Invalid(at.Child("hosts").Index(j), host, hostName(host))...)
		}
		errs = append(errs, check.UnsetOrNamed(at.Child("secretName"), tls.SecretName, check.Subdomain)...)
	}
	return append(errs, check.NilOrNamed(path.Child("ingressClassName"), spec.IngressClassName, check.Subdomain)...)
}

// hostName accepts a DNS name whose first label may be "*".
func hostName(host string) []string {
	if strings.Contains(host, "*") {
		return validation.IsWildcardDNS1123Subdomain(host)
	}
	return validation.IsDNS1123Subdomain(host)
}

func ingressRule(rule *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rule.Host != "" {
		at := path.Child("host")
		if netutils.ParseIPSloppy(rule.Host) != nil {
			errs = append(errs, field.Invalid(at, rule.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, check.Invalid(at, rule.Host, hostName(rule.Host))...)
	}
	if rule.HTTP == nil {
		return errs
	}
	paths := path.Child("http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(paths, ""))
	}
	for i := range rule.HTTP.Paths {
		errs = append(errs, ingressPath(&rule.HTTP.Paths[i], paths.Index(i))...)
	}
	return errs
}

func ingressPath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	at := path.Child("path")
	errs := check.NilOr(path.Child("pathType"), p.PathType, networkingv1.PathTypeExact,
		networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix)
	plain := *p.PathType == networkingv1.PathTypeExact || *p.PathType == networkingv1.PathTypePrefix
	absolute := plain || *p.PathType == networkingv1.PathTypeImplementationSpecific && p.Path != ""
	if absolute && !strings.HasPrefix(p.Path, "/") {
		errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
	}
	if plain { // reject sequences that proxies interpret differently
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("must not contain '%s'", part)))
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("cannot end with '%s'", end)))
			}
		}
	}
	return append(errs, ingressBackend(&p.Backend, path.Child("backend"))...)
}

// ingressBackend requires either a Service or another object of the namespace.
func ingressBackend(backend *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	service, resource := backend.Service, backend.Resource
	switch {
	case service != nil && resource != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case resource != nil:
		return typedReference(resource.APIGroup, resource.Kind, resource.Name, path.Child("resource"))
	case service == nil:
		return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
	}
	at, port := path.Child("service"), service.Port
	errs := check.Named(at.Child("name"), service.Name, func(name string) []string {
		return apivalidation.NameIsDNSLabel(name, false)
	})
	switch {
	case port.Name != "" && port.Number != 0:
		return append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case port.Name != "":
		return append(errs, check.Invalid(at.Child("port", "name"), port.Name, validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		return append(errs, check.Port(at.Child("port", "number"), port.Number)...)
	}
	return append(errs, field.Required(path, "port name or number is required"))
}

// typedReference checks the group, kind and name of an object reference.
func typedReference(group *string, kindName, name string, path *field.Path) field.ErrorList {
	errs := check.NilOrNamed(path.Child("apiGroup"), group, validation.IsDNS1123Subdomain)
	errs = append(errs, check.Named(path.Child("kind"), kindName, content.IsPathSegmentName)...)
	return append(errs, check.Named(path.Child("name"), name, content.IsPathSegmentName)...)
}
