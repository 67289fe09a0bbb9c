package endpoints

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/podstate"
	"monopod/controllers/servicestate"
)

// maxCapacity is upstream's maximum number of addresses of an Endpoints object.
const maxCapacity = 1000

// target identifies an address. The UID distinguishes pods in the host network of a node, which share its IP.
type target struct {
	ip  string
	uid types.UID
}

// offer contains the addresses that have a port, and whether they are ready.
type offer struct {
	port  corev1.EndpointPort
	ready map[target]bool
}

// subsetsOf returns the subsets of a Service in their canonical form: each set of addresses once, with all of its
// ports. Addresses are sorted by IP and UID, ports by name, number and protocol, subsets by their ports.
func subsetsOf(s *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	addresses := map[target]corev1.EndpointAddress{}
	offers := map[string]*offer{} // by port
	for _, p := range pods {
		if !servicestate.Member(p) || p.DeletionTimestamp != nil && !s.Spec.PublishNotReadyAddresses {
			continue
		}
		a, ok := address(s, p)
		if !ok {
			continue
		}
		t := target{a.IP, p.UID}
		addresses[t] = a
		ready := s.Spec.PublishNotReadyAddresses || podstate.Ready(p)
		if len(s.Spec.Ports) == 0 {
			offered(offers, corev1.EndpointPort{}, t, ready) // of a headless Service
		}
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if number, ok := servicestate.Port(p, port); ok {
				offered(offers,
					corev1.EndpointPort{Name: port.Name, Port: number, Protocol: port.Protocol, AppProtocol: port.AppProtocol}, t,
					ready)
			}
		}
	}
	return repack(addresses, offers)
}

func offered(offers map[string]*offer, port corev1.EndpointPort, t target, ready bool) {
	key := portText(port)
	if offers[key] == nil {
		offers[key] = &offer{port: port, ready: map[target]bool{}}
	}
	offers[key].ready[t] = ready
}

func portText(p corev1.EndpointPort) string {
	app := ""
	if p.AppProtocol != nil {
		app = *p.AppProtocol
	}
	return fmt.Sprintf("%s/%05d/%s/%s", p.Name, p.Port, p.Protocol, app)
}

// address returns the pod's address of the Service's first family.
func address(s *corev1.Service, p *corev1.Pod) (corev1.EndpointAddress, bool) {
	family := servicestate.Families(s)[0]
	if len(s.Spec.IPFamilies) == 0 && servicestate.Headless(s) && strings.Contains(p.Status.PodIP, ":") {
		family = corev1.IPv6Protocol
	}
	found := servicestate.Addresses(p, family)
	if len(found) == 0 {
		return corev1.EndpointAddress{}, false
	}
	a := corev1.EndpointAddress{IP: found[0], Hostname: servicestate.Hostname(p, s), TargetRef: servicestate.Reference(p)}
	if p.Spec.NodeName != "" {
		a.NodeName = new(p.Spec.NodeName)
	}
	return a, true
}

// repack groups ports with the same addresses.
func repack(addresses map[target]corev1.EndpointAddress, offers map[string]*offer) []corev1.EndpointSubset {
	keys := make([]string, 0, len(offers))
	for key := range offers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	var subsets []corev1.EndpointSubset
	at := map[string]int{} // subset by its addresses
	for _, key := range keys {
		o := offers[key]
		targets := make([]target, 0, len(o.ready))
		for t := range o.ready {
			targets = append(targets, t)
		}
		slices.SortFunc(targets, func(a, b target) int { return cmp.Or(cmp.Compare(a.ip, b.ip), cmp.Compare(a.uid, b.uid)) })
		var text strings.Builder
		for _, t := range targets {
			text.WriteString(t.ip + "/" + string(t.uid) + ",")
		}
		i, ok := at[text.String()]
		if !ok {
			i = len(subsets)
			at[text.String()] = i
			subsets = append(subsets, subset(addresses, targets, o.ready))
		}
		if o.port.Port != 0 {
			subsets[i].Ports = append(subsets[i].Ports, o.port)
		}
	}
	return subsets
}

func subset(addresses map[target]corev1.EndpointAddress, targets []target,
	ready map[target]bool) corev1.EndpointSubset {
	var s corev1.EndpointSubset
	for _, t := range targets {
		if ready[t] {
			s.Addresses = append(s.Addresses, addresses[t])
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, addresses[t])
		}
	}
	return s
}

// truncate limits the number of addresses to maxCapacity, ready ones first, in proportion to the subsets. It returns
// false if there are not too many.
func truncate(subsets []corev1.EndpointSubset) bool {
	ready, notReady := 0, 0
	for _, s := range subsets {
		ready += len(s.Addresses)
		notReady += len(s.NotReadyAddresses)
	}
	if ready+notReady <= maxCapacity {
		return false
	}
	free, total := maxCapacity-ready, notReady
	if ready > maxCapacity {
		free, total = maxCapacity, ready
	}
	left := free
	for i := range subsets {
		s := &subsets[i]
		list := &s.NotReadyAddresses
		if ready > maxCapacity {
			list, s.NotReadyAddresses = &s.Addresses, nil
		}
		n := int(math.Ceil(float64(len(*list)) / float64(total) * float64(free)))
		*list = (*list)[:min(n, left, len(*list))]
		left -= len(*list)
	}
	return true
}
