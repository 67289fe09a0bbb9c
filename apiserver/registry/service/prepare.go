package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/kind"
)

// servicePrepare restores allocated fields that an update omits, and clears fields that the new type does not have.
func servicePrepare(next, cur kind.Object, subresource string) {
	service := next.(*corev1.Service)
	if cur == nil {
		service.Status = corev1.ServiceStatus{}
		mirrorClusterIP(&service.Spec)
		return
	}
	old := cur.(*corev1.Service)
	switch subresource {
	case "delete":
	case "status":
		service.Spec = *old.Spec.DeepCopy()
	default:
		service.Status = *old.Status.DeepCopy()
		serviceDefault(service)
		is, was := &service.Spec, &old.Spec
		keepAllocated(is, was)
		if was.ClusterIP != "" && is.ClusterIP != was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) {
			is.ClusterIPs = nil // the client changed only clusterIP
		}
		mirrorClusterIP(is)
		dropByType(is, was)
	}
}

// mirrorClusterIP copies clusterIP to clusterIPs for clients that know only the older field.
func mirrorClusterIP(spec *corev1.ServiceSpec) {
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
}

// keepAllocated restores allocated fields that the client omitted and the Service still needs.
func keepAllocated(next, cur *corev1.ServiceSpec) {
	if NeedsAddress(cur) && NeedsAddress(next) {
		kind.SetIfZero(&next.ClusterIP, cur.ClusterIP)
		if len(next.ClusterIPs) == 0 && next.ClusterIP == cur.ClusterIP {
			next.ClusterIPs = slices.Clone(cur.ClusterIPs)
		}
	}
	if NeedsNodePorts(cur) && NeedsNodePorts(next) {
		keepNodePorts(next, cur)
	}
	if NeedsHealthCheck(cur) && NeedsHealthCheck(next) {
		kind.SetIfZero(&next.HealthCheckNodePort, cur.HealthCheckNodePort)
	}
}

// keepNodePorts restores the node port of the current port with the same name, unless another port requests it.
func keepNodePorts(next, cur *corev1.ServiceSpec) {
	used, named := map[int32]bool{}, map[string]int32{}
	for i := range next.Ports {
		used[next.Ports[i].NodePort] = true
	}
	for i := range cur.Ports {
		named[cur.Ports[i].Name] = cur.Ports[i].NodePort
	}
	for i := range next.Ports {
		port := &next.Ports[i]
		if had := named[port.Name]; port.NodePort == 0 && had != 0 && !used[had] {
			port.NodePort, used[had] = had, true
		}
	}
}

// dropByType clears unchanged fields that the new type does not have. Validation rejects changed ones.
func dropByType(next, cur *corev1.ServiceSpec) {
	if NeedsAddress(cur) && !NeedsAddress(next) {
		if slices.Equal(next.ClusterIPs, cur.ClusterIPs) && next.ClusterIP == cur.ClusterIP {
			next.ClusterIP, next.ClusterIPs = "", nil
		}
		if slices.Equal(next.IPFamilies, cur.IPFamilies) {
			next.IPFamilies = nil
		}
		dropSamePointer(&next.IPFamilyPolicy, cur.IPFamilyPolicy)
	}
	if NeedsNodePorts(cur) && !NeedsNodePorts(next) && sameNodePorts(next, cur) {
		for i := range next.Ports {
			next.Ports[i].NodePort = 0
		}
	}
	if NeedsHealthCheck(cur) && !NeedsHealthCheck(next) {
		dropSame(&next.HealthCheckNodePort, cur.HealthCheckNodePort)
	}
	if ExternallyAccessible(cur) && !ExternallyAccessible(next) {
		dropSame(&next.ExternalTrafficPolicy, cur.ExternalTrafficPolicy)
	}
	if cur.Type == corev1.ServiceTypeLoadBalancer && next.Type != corev1.ServiceTypeLoadBalancer {
		dropSamePointer(&next.AllocateLoadBalancerNodePorts, cur.AllocateLoadBalancerNodePorts)
		dropSamePointer(&next.LoadBalancerClass, cur.LoadBalancerClass)
	}
}

// sameNodePorts reports whether cur has all node ports of next.
func sameNodePorts(next, cur *corev1.ServiceSpec) bool {
	return !slices.ContainsFunc(next.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort != 0 &&
			!slices.ContainsFunc(cur.Ports, func(q corev1.ServicePort) bool { return q.NodePort == p.NodePort })
	})
}

func dropSame[T comparable](next *T, cur T) {
	if *next == cur {
		var zero T
		*next = zero
	}
}

func dropSamePointer[T comparable](next **T, cur *T) {
	if *next != nil && cur != nil && **next == *cur {
		*next = nil
	}
}
