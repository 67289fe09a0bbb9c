package service

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Limits of one EndpointSlice (upstream: pkg/apis/discovery/validation).
const (
	maxEndpoints     = 1000
	maxAddresses     = 100 // per endpoint
	maxEndpointPorts = 20000
	maxHints         = 8 // per endpoint, for zones and for nodes
)

func endpointSliceResource() kind.Resource {
	return kind.Resource{
		GVR:        client.EndpointSlices,
		Kind:       "EndpointSlice",
		Namespaced: true,
		New:        func() kind.Object { return new(discoveryv1.EndpointSlice) },
		Default:    endpointSliceDefault,
		Prepare:    endpointSlicePrepare,
		Validate:   endpointSliceValidate,
		Warnings:   endpointSliceWarnings,
		Columns: []table.Column{
			table.Name(),
			table.Text("AddressType", "The type of the addresses.",
				func(s *discoveryv1.EndpointSlice) string { return string(s.AddressType) }),
			table.Text("Ports", "The ports of each endpoint.", endpointSlicePorts),
			table.Text("Endpoints", "Addresses of the endpoints.", endpointSliceAddresses),
			table.Age(),
		},
	}
}

func endpointSliceDefault(obj kind.Object) {
	ports := obj.(*discoveryv1.EndpointSlice).Ports
	for i := range ports {
		kind.SetIfNil(&ports[i].Name, "")
		kind.SetIfNil(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// endpointSlicePrepare increments the generation when the labels, which contain the name of the Service, or anything
// outside of the metadata changes. It removes the deprecated topology.
func endpointSlicePrepare(next, cur kind.Object, subresource string) {
	slice := next.(*discoveryv1.EndpointSlice)
	for i := range slice.Endpoints {
		slice.Endpoints[i].DeprecatedTopology = nil
	}
	if cur == nil {
		slice.Generation = 1
		return
	}
	if subresource == "delete" {
		return
	}
	endpointSliceDefault(slice)
	old := cur.(*discoveryv1.EndpointSlice)
	a, b := *slice, *old
	a.ObjectMeta, b.ObjectMeta = metav1.ObjectMeta{Labels: slice.Labels}, metav1.ObjectMeta{Labels: old.Labels}
	a.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
	if !equality.Semantic.DeepEqual(a, b) {
		slice.Generation = old.Generation + 1
	}
}

func endpointSliceValidate(next, cur kind.Object, _ string) field.ErrorList {
	slice := next.(*discoveryv1.EndpointSlice)
	path := field.NewPath("addressType")
	errs := check.OneOf(path, slice.AddressType, discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4,
		discoveryv1.AddressTypeIPv6)
	errs = append(errs, endpointList(slice, field.NewPath("endpoints"))...)
	errs = append(errs, endpointPorts(slice.Ports, field.NewPath("ports"))...)
	if cur != nil {
		errs = append(errs, check.Immutable(path, slice.AddressType, cur.(*discoveryv1.EndpointSlice).AddressType)...)
	}
	return errs
}

func endpointList(slice *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if n := len(slice.Endpoints); n > maxEndpoints {
		return field.ErrorList{field.TooMany(path, n, maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range slice.Endpoints {
		endpoint, at := &slice.Endpoints[i], path.Index(i)
		errs = append(errs, endpointAddresses(endpoint.Addresses, slice.AddressType, at.Child("addresses"))...)
		errs = append(errs, check.NilOrNamed(at.Child("nodeName"), endpoint.NodeName, check.Subdomain)...)
		errs = append(errs, check.NilOrNamed(at.Child("hostname"), endpoint.Hostname, validation.IsDNS1123Label)...)
		if hints := endpoint.Hints; hints != nil {
			var zones, nodes []string
			for _, h := range hints.ForZones {
				zones = append(zones, h.Name)
			}
			for _, h := range hints.ForNodes {
				nodes = append(nodes, h.Name)
			}
			errs = append(errs, hintNames(zones, at.Child("hints", "forZones"), validation.IsValidLabelValue)...)
			errs = append(errs, hintNames(nodes, at.Child("hints", "forNodes"), check.Subdomain)...)
		}
	}
	return errs
}

// endpointAddresses checks the family of the addresses. An unknown family is reported only once, for addressType.
func endpointAddresses(addresses []string, family discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := len(addresses); {
	case n == 0:
		errs = append(errs, field.Required(path, "must contain at least 1 address"))
	case n > maxAddresses:
		errs = append(errs, field.TooMany(path, n, maxAddresses))
	}
	for i, address := range addresses {
		at := path.Index(i)
		switch family {
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(at, address)...)
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			wrong := check.IP(at, address, nil)
			if len(wrong) == 0 && string(FamilyOf(address)) != string(family) {
				wrong = append(wrong, field.Invalid(at, address, fmt.Sprintf("must be an %s address", family)))
			}
			errs = append(append(errs, wrong...), check.OrdinaryIP(at, address)...)
		}
	}
	return errs
}

func hintNames(names []string, path *field.Path, valid func(string) []string) field.ErrorList {
	if len(names) > maxHints {
		return field.ErrorList{field.TooMany(path, len(names), maxHints)}
	}
	var errs field.ErrorList
	for i, name := range names {
		at := path.Index(i).Child("name")
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
		errs = append(errs, check.Invalid(at, name, valid(name))...)
	}
	return errs
}

func endpointPorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if n := len(ports); n > maxEndpointPorts {
		return field.ErrorList{field.TooMany(path, n, maxEndpointPorts)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, p := range ports { // name and protocol have defaults
		at := path.Index(i)
		errs = append(errs, check.UnsetOrNamed(at.Child("name"), *p.Name, validation.IsDNS1123Label)...)
		errs = append(errs, check.Unique(at.Child("name"), *p.Name, seen)...)
		errs = append(errs, protocol(at.Child("protocol"), *p.Protocol)...)
		errs = append(errs, appProtocol(at.Child("appProtocol"), p.AppProtocol)...)
	}
	return errs
}

func endpointSliceWarnings(next, _ kind.Object) []string {
	slice := next.(*discoveryv1.EndpointSlice)
	if slice.AddressType == discoveryv1.AddressTypeFQDN {
		return []string{"spec.addressType: FQDN endpoints are deprecated"} // the path is upstream's
	}
	var warnings []string
	for i, endpoint := range slice.Endpoints {
		warnings = append(warnings,
			addressWarnings(field.NewPath("endpoints").Index(i).Child("addresses"), endpoint.Addresses)...)
	}
	return warnings
}

// endpointSlicePorts lists the number of each port, or by default its name, or "*".
func endpointSlicePorts(slice *discoveryv1.EndpointSlice) string {
	var all []string
	for _, p := range slice.Ports {
		switch {
		case p.Port != nil:
			all = append(all, strconv.Itoa(int(*p.Port)))
		case p.Name != nil:
			all = append(all, *p.Name)
		default:
			all = append(all, "*")
		}
	}
	return cmp.Or(firstOf(all, ""), table.Unset)
}

func endpointSliceAddresses(slice *discoveryv1.EndpointSlice) string {
	var all []string
	for _, endpoint := range slice.Endpoints {
		all = append(all, endpoint.Addresses...)
	}
	return cmp.Or(firstOf(all, ""), table.Unset)
}
