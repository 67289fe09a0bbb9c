package endpointslicemirroring

import (
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/controllers/sliceset"
)

// leaderElection is the annotation of Endpoints that client-go uses for leader election; they do not belong to a
// Service.
const leaderElection = "control-plane.alpha.kubernetes.io/leader"

// mirrored reports whether Endpoints are mirrored if their Service has no selector.
func mirrored(e *corev1.Endpoints) bool {
	_, election := e.Annotations[leaderElection]
	return e.Labels[discoveryv1.LabelSkipMirror] != "true" && !election
}

// mirror contains what the slices of Endpoints should contain.
type mirror struct {
	groups  []sliceset.Group
	invalid int // addresses that are not IPs
	skipped int // addresses beyond the limit, and invalid ones
}

// mirrorOf returns the slices of Endpoints. Each subset has a slice for each address type, together with at most limit
// addresses, ready ones first.
func mirrorOf(e *corev1.Endpoints, limit int) mirror {
	var m mirror
	at := map[string]int{} // group by family and ports
	for _, s := range e.Subsets {
		list := ports(s.Ports)
		text := sliceset.PortKey(list)
		added := 0
		add := func(all []corev1.EndpointAddress, ready bool) {
			for i := range all {
				if added >= limit {
					return
				}
				next, family, ok := endpoint(&all[i], ready)
				if !ok {
					m.invalid++
					continue
				}
				key := string(family) + "/" + text
				g, known := at[key]
				if !known {
					g = len(m.groups)
					at[key] = g
					m.groups = append(m.groups, sliceset.Group{Family: family, Ports: list})
				}
				m.groups[g].Endpoints = append(m.groups[g].Endpoints, next)
				added++
			}
		}
		add(s.Addresses, true)
		add(s.NotReadyAddresses, false)
		m.skipped += len(s.Addresses) + len(s.NotReadyAddresses) - added
	}
	return m
}

func endpoint(a *corev1.EndpointAddress, ready bool) (discoveryv1.Endpoint, discoveryv1.AddressType, bool) {
	ip, err := netip.ParseAddr(a.IP)
	if err != nil {
		return discoveryv1.Endpoint{}, "", false
	}
	ip = ip.Unmap()
	family := discoveryv1.AddressTypeIPv4
	if ip.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	e := discoveryv1.Endpoint{
		Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef: a.TargetRef.DeepCopy(),
	}
	if a.NodeName != nil {
		e.NodeName = new(*a.NodeName)
	}
	if a.Hostname != "" {
		e.Hostname = new(a.Hostname)
	}
	return e, family, true
}

func ports(all []corev1.EndpointPort) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, len(all))
	for i, p := range all {
		out[i] = discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port), Protocol: new(p.Protocol)}
		if p.AppProtocol != nil {
			out[i].AppProtocol = new(*p.AppProtocol)
		}
	}
	return out
}

// annotations returns the annotations of the slices: all of the Endpoints' except those that only describe Endpoints.
func annotations(e *corev1.Endpoints) map[string]string {
	out := map[string]string{}
	maps.Copy(out, e.Annotations)
	delete(out, corev1.EndpointsLastChangeTriggerTime)
	delete(out, corev1.LastAppliedConfigAnnotation)
	return out
}
