package service

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
)

func serviceResource() kind.Resource {
	return kind.Resource{
		GVR:           client.Services,
		Kind:          "Service",
		Namespaced:    true,
		ShortNames:    []string{"svc"},
		Categories:    []string{"all"},
		Subresources:  append(kind.Parts("status"), kind.Proxy("Service")),
		New:           func() kind.Object { return new(corev1.Service) },
		ValidName:     apivalidation.NameIsDNSLabel,
		Default:       serviceDefault,
		Prepare:       servicePrepare,
		Validate:      serviceValidate,
		ReturnDeleted: true,
		Fields: func(obj kind.Object) fields.Set {
			spec := &obj.(*corev1.Service).Spec
			return fields.Set{"spec.clusterIP": spec.ClusterIP, "spec.type": string(spec.Type)}
		},
		Warnings: serviceWarnings,
		Columns:  serviceColumns(),
	}
}

// serviceDefault implements upstream's SetDefaults_Service. Addresses and node ports are allocated later.
func serviceDefault(obj kind.Object) {
	service := obj.(*corev1.Service)
	spec := &service.Spec
	kind.SetIfZero(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		kind.SetIfNil(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		kind.SetIfNil(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		kind.SetIfNil(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	kind.SetIfZero(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		kind.SetIfZero(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if ExternallyAccessible(spec) {
		kind.SetIfZero(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if inCluster(spec.Type) {
		kind.SetIfNil(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	kind.SetIfNil(&spec.AllocateLoadBalancerNodePorts, true)
	for i := range service.Status.LoadBalancer.Ingress {
		if ingress := &service.Status.LoadBalancer.Ingress[i]; ingress.IP != "" {
			kind.SetIfNil(&ingress.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

// inCluster reports whether Services of the type route traffic inside the cluster.
func inCluster(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeClusterIP || onNodes(t)
}

// onNodes reports whether Services of the type have node ports.
func onNodes(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer
}

// NeedsNodePorts reports whether the Service has node ports.
func NeedsNodePorts(spec *corev1.ServiceSpec) bool { return onNodes(spec.Type) }

// NeedsAddress reports whether the Service has a cluster IP, which is "None" for a headless Service.
func NeedsAddress(spec *corev1.ServiceSpec) bool { return spec.Type != corev1.ServiceTypeExternalName }

// NeedsHealthCheck reports whether load balancers check on each node whether the Service has local endpoints.
func NeedsHealthCheck(spec *corev1.ServiceSpec) bool {
	return spec.Type == corev1.ServiceTypeLoadBalancer &&
		spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// ExternallyAccessible reports whether the Service is reachable from outside of the cluster.
func ExternallyAccessible(spec *corev1.ServiceSpec) bool {
	return onNodes(spec.Type) || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
}

// Headless reports whether the cluster IP is "None".
func Headless(spec *corev1.ServiceSpec) bool {
	return len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone
}
