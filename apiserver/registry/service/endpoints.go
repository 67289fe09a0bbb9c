package service

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// maxShown is the maximum number of list items in a cell (upstream: pkg/printers).
const maxShown = 3

func endpointsResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Endpoints,
		Kind:       "Endpoints",
		Controller: "endpointslicemirroring",
		Namespaced: true,
		ShortNames: []string{"ep"},
		Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		New:        func() kind.Object { return new(corev1.Endpoints) },
		Default:    endpointsDefault,
		Validate: func(next, cur kind.Object, _ string) field.ErrorList {
			return endpointsValidate(next, cur)
		},
		Warnings: func(next, _ kind.Object) []string {
			return endpointsWarnings(next.(*corev1.Endpoints))
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Endpoints", "Ready addresses with their ports.", endpointsList),
			table.Age(),
		},
	}
}

func endpointsDefault(obj kind.Object) {
	for i := range obj.(*corev1.Endpoints).Subsets {
		ports := obj.(*corev1.Endpoints).Subsets[i].Ports
		for j := range ports {
			kind.SetIfZero(&ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

func endpointsValidate(next, cur kind.Object) field.ErrorList {
	var known []string
	if cur != nil {
		for _, subset := range cur.(*corev1.Endpoints).Subsets {
			for _, a := range append(subset.Addresses, subset.NotReadyAddresses...) {
				known = append(known, a.IP)
			}
		}
	}
	var errs field.ErrorList
	for i, subset := range next.(*corev1.Endpoints).Subsets {
		errs = append(errs, endpointSubset(field.NewPath("subsets").Index(i), subset, known)...)
	}
	return errs
}

func endpointSubset(path *field.Path, subset corev1.EndpointSubset, known []string) field.ErrorList {
	var errs field.ErrorList
	if len(subset.Addresses)+len(subset.NotReadyAddresses) == 0 {
		errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
	}
	for i, a := range subset.Addresses {
		errs = append(errs, endpointAddress(path.Child("addresses").Index(i), a, known)...)
	}
	for i, a := range subset.NotReadyAddresses {
		errs = append(errs, endpointAddress(path.Child("notReadyAddresses").Index(i), a, known)...)
	}
	for i, p := range subset.Ports {
		errs = append(errs, endpointPort(path.Child("ports").Index(i), p, len(subset.Ports) > 1)...)
	}
	return errs
}

func endpointAddress(path *field.Path, a corev1.EndpointAddress, known []string) field.ErrorList {
	errs := check.IP(path.Child("ip"), a.IP, known)
	errs = append(errs, check.UnsetOrNamed(path.Child("hostname"), a.Hostname, validation.IsDNS1123Label)...)
	errs = append(errs, check.NilOrNamed(path.Child("nodeName"), a.NodeName, check.Subdomain)...)
	return append(errs, check.OrdinaryIP(path.Child("ip"), a.IP)...)
}

func endpointPort(path *field.Path, p corev1.EndpointPort, named bool) field.ErrorList {
	var errs field.ErrorList
	if named && p.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, check.UnsetOrNamed(path.Child("name"), p.Name, validation.IsDNS1123Label)...)
	errs = append(errs, check.Invalid(path.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))...)
	errs = append(errs, protocol(path.Child("protocol"), p.Protocol)...)
	return append(errs, appProtocol(path.Child("appProtocol"), p.AppProtocol)...)
}

func endpointsWarnings(endpoints *corev1.Endpoints) []string {
	var warnings []string
	for i, subset := range endpoints.Subsets {
		path := field.NewPath("subsets").Index(i)
		for j, a := range subset.Addresses {
			warnings = append(warnings, validation.GetWarningsForIP(path.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range subset.NotReadyAddresses {
			warnings = append(warnings,
				validation.GetWarningsForIP(path.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return warnings
}

// endpointsList returns the first ready addresses with their ports.
func endpointsList(endpoints *corev1.Endpoints) string {
	var all []string
	for _, subset := range endpoints.Subsets {
		if len(subset.Ports) == 0 {
			for _, a := range subset.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, p := range subset.Ports {
			for _, a := range subset.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return firstOf(all, table.None)
}

// firstOf returns the first items and the number of omitted ones; none if all is empty.
func firstOf(all []string, none string) string {
	switch {
	case len(all) == 0:
		return none
	case len(all) > maxShown:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:maxShown], ","), len(all)-maxShown)
	}
	return strings.Join(all, ",")
}
