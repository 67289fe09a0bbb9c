package service

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// maxAffinitySeconds is one day (upstream: MaxClientIPServiceAffinitySeconds).
const maxAffinitySeconds = 24 * 60 * 60

// kubeletPort is the port of the kubelet's API.
const kubeletPort = 10250

func serviceValidate(next, cur kind.Object, subresource string) field.ErrorList {
	service := next.(*corev1.Service)
	if subresource == "status" {
		return serviceStatus(service, cur.(*corev1.Service))
	}
	var errs field.ErrorList
	if cur != nil {
		errs = serviceUpdate(&service.Spec, &cur.(*corev1.Service).Spec, field.NewPath("spec"))
	}
	hints, old := service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	mode, newer := service.Annotations[corev1.AnnotationTopologyMode]
	if old && newer && hints != mode {
		path := field.NewPath("metadata", "annotations").Key(corev1.AnnotationTopologyMode)
		errs = append(errs, field.Invalid(path, mode, fmt.Sprintf(
			"must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	errs = append(errs, serviceSpec(&service.Spec, field.NewPath("spec"))...)
	return append(errs, serviceSourceAnnotation(service)...)
}

func serviceSpec(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		serviceForm(spec, path),
		servicePorts(spec, path.Child("ports")),
		metavalidation.ValidateLabels(spec.Selector, path.Child("selector")),
		serviceAffinity(spec, path),
		ValidateClusterIPs(spec, path))
	for i, ip := range spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		if wrong := check.IP(at, ip, nil); len(wrong) > 0 {
			errs = append(errs, wrong...)
		} else {
			errs = append(errs, check.OrdinaryIP(at, ip)...)
		}
	}
	return slices.Concat(errs,
		check.OneOf(path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP,
			corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort),
		servicePortNumbers(spec, path.Child("ports")),
		serviceLoadBalancer(spec, path),
		serviceTraffic(spec, path))
}

// serviceForm checks the fields that each type requires or forbids.
func serviceForm(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Ports) == 0 && !Headless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(path.Child("ports"), ""))
	}
	for i, p := range spec.Ports {
		if spec.Type == corev1.ServiceTypeLoadBalancer && p.Port == kubeletPort {
			errs = append(errs, field.Invalid(path.Child("ports").Index(i), p.Port,
				fmt.Sprintf("may not expose port %d externally since it is used by kubelet", kubeletPort)))
		}
	}
	if onNodes(spec.Type) && Headless(spec) {
		errs = append(errs, field.Invalid(path.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
			fmt.Sprintf("may not be set to 'None' for %s services", spec.Type)))
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		return errs
	}
	const refusal = "may not be set for ExternalName services"
	if len(spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(path.Child("clusterIPs"), refusal))
	}
	if len(spec.IPFamilies) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ipFamilies"), refusal))
	}
	if spec.IPFamilyPolicy != nil {
		errs = append(errs, field.Forbidden(path.Child("ipFamilyPolicy"), refusal))
	}
	name := strings.TrimSuffix(spec.ExternalName, ".") // a fully qualified name may end with a dot
	return append(errs, check.Named(path.Child("externalName"), name, validation.IsDNS1123Subdomain)...)
}

func serviceAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	errs := check.OneOf(path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP,
		corev1.ServiceAffinityNone)
	config := spec.SessionAffinityConfig
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP || config == nil || config.ClientIP == nil ||
		config.ClientIP.TimeoutSeconds == nil {
		return errs // defaults cover the other cases
	}
	if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxAffinitySeconds {
		errs = append(errs, field.Invalid(path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), seconds,
			fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
	}
	return errs
}

// servicePorts requires unique names for multiple ports.
func servicePorts(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range spec.Ports {
		port, at := &spec.Ports[i], path.Index(i)
		switch name := port.Name; {
		case name != "":
			errs = append(errs, check.Invalid(at.Child("name"), name, validation.IsDNS1123Label(name))...)
			errs = append(errs, check.Unique(at.Child("name"), name, names)...)
		case len(spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		errs = append(errs, check.Port(at.Child("port"), port.Port)...)
		errs = append(errs, protocol(at.Child("protocol"), port.Protocol)...)
		errs = append(errs, check.PortOrName(at.Child("targetPort"), port.TargetPort)...)
		errs = append(errs, appProtocol(at.Child("appProtocol"), port.AppProtocol)...)
	}
	return errs
}

func protocol(path *field.Path, p corev1.Protocol) field.ErrorList {
	return check.OneOf(path, p, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func appProtocol(path *field.Path, name *string) field.ErrorList {
	return check.NilOrNamed(path, name, validation.IsQualifiedName)
}

// servicePortNumbers rejects node ports for type ClusterIP, and duplicate ports and node ports of the same protocol.
func servicePortNumbers(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var refused, twice, duplicates field.ErrorList
	seen := map[corev1.ServicePort]bool{}
	for i, p := range spec.Ports {
		number := corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}
		if seen[number] {
			duplicates = append(duplicates, field.Duplicate(path.Index(i), number))
		}
		seen[number] = true
		if p.NodePort == 0 {
			continue
		}
		at, node := path.Index(i).Child("nodePort"), corev1.ServicePort{Protocol: p.Protocol, NodePort: p.NodePort}
		if spec.Type == corev1.ServiceTypeClusterIP {
			refused = append(refused, field.Forbidden(at, "may not be used when `type` is 'ClusterIP'"))
		}
		if seen[node] {
			twice = append(twice, field.Duplicate(at, p.NodePort))
		}
		seen[node] = true
	}
	return slices.Concat(refused, twice, duplicates)
}
