package endpointslice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/podstate"
	"monopod/controllers/servicestate"
	"monopod/controllers/sliceset"
)

// build returns the endpoints of a Service grouped by address type and ports. A family without endpoints gets one empty
// group. zones contains the zones of nodes; build omits pods on nodes that it lacks.
func build(s *corev1.Service, pods []*corev1.Pod, zones map[string]string, missing map[string]bool) []sliceset.Group {
	var groups []sliceset.Group
	fixed, everywhere := samePorts(s)
	for _, family := range servicestate.Families(s) {
		begin := len(groups)
		at := map[string]int{} // group by ports
		for _, p := range pods {
			if !servicestate.Member(p) || missing[p.Spec.NodeName] {
				continue
			}
			addresses := servicestate.Addresses(p, family)
			if len(addresses) == 0 {
				continue
			}
			list, key := fixed, ""
			if !everywhere {
				list = ports(s, p)
				key = sliceset.PortKey(list)
			}
			i, ok := at[key]
			if !ok {
				i = len(groups)
				at[key] = i
				groups = append(groups, sliceset.Group{Family: addressType(family), Ports: list})
			}
			groups[i].Endpoints = append(groups[i].Endpoints, endpoint(s, p, addresses, zones[p.Spec.NodeName]))
		}
		if len(groups) == begin {
			groups = append(groups, sliceset.Group{Family: addressType(family), Ports: []discoveryv1.EndpointPort{}})
		}
	}
	return groups
}

// samePorts returns the ports of all pods, unless a target port is named, because its number may differ between pods.
func samePorts(s *corev1.Service) ([]discoveryv1.EndpointPort, bool) {
	if slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.TargetPort.Type == intstr.String }) {
		return nil, false
	}
	return ports(s, nil), true
}

// ports returns those ports of the Service that the pod has.
func ports(s *corev1.Service, p *corev1.Pod) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, 0, len(s.Spec.Ports))
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		number, ok := servicestate.Port(p, port)
		if !ok {
			continue
		}
		next := discoveryv1.EndpointPort{Name: new(port.Name), Port: new(number), Protocol: new(port.Protocol)}
		if port.AppProtocol != nil {
			next.AppProtocol = new(*port.AppProtocol)
		}
		out = append(out, next)
	}
	return out
}

// endpoint returns the endpoint of one pod.
func endpoint(s *corev1.Service, p *corev1.Pod, addresses []string, zone string) discoveryv1.Endpoint {
	serving, terminating := podstate.Ready(p), p.DeletionTimestamp != nil
	e := discoveryv1.Endpoint{
		Addresses: addresses,
		Conditions: discoveryv1.EndpointConditions{
			Ready: new(s.Spec.PublishNotReadyAddresses || serving && !terminating), Serving: &serving, Terminating: &terminating,
		},
		TargetRef: servicestate.Reference(p),
	}
	if p.Spec.NodeName != "" {
		e.NodeName = new(p.Spec.NodeName)
	}
	if zone != "" {
		e.Zone = new(zone)
	}
	if name := servicestate.Hostname(p, s); name != "" {
		e.Hostname = new(name)
	}
	e.Hints = hints(s, &e)
	return e
}

// hints returns the hints for spec.trafficDistribution: a ready endpoint serves its own zone and, with PreferSameNode,
// its own node. The topology mode annotation takes precedence.
func hints(s *corev1.Service, e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	distribution := trafficDistribution(s)
	if distribution == "" || !*e.Conditions.Ready {
		return nil
	}
	var h discoveryv1.EndpointHints
	if e.Zone != nil {
		h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if e.NodeName != nil && distribution == corev1.ServiceTrafficDistributionPreferSameNode {
		h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if h.ForZones == nil && h.ForNodes == nil {
		return nil
	}
	return &h
}

// trafficDistribution returns the value for which hints are set; empty: none.
func trafficDistribution(s *corev1.Service) string {
	if s.Spec.TrafficDistribution == nil || topologyAuto(s) {
		return ""
	}
	switch *s.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode:
		return *s.Spec.TrafficDistribution
	}
	return ""
}

// topologyAuto reports whether the topology mode annotation requests hints. The older name of the annotation takes
// precedence.
func topologyAuto(s *corev1.Service) bool {
	value, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		value = s.Annotations[corev1.AnnotationTopologyMode]
	}
	return value == "Auto" || value == "auto"
}
