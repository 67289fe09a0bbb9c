package service

import (
	"fmt"
	"net"
	"slices"
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
		Validate:   endpointsValidate,
		Warnings:   endpointsWarnings,
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

func endpointsValidate(next, cur kind.Object, _ string) field.ErrorList {
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
		path := field.NewPath("subsets").Index(i)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range subset.Addresses {
			errs = append(errs, endpointAddress(path.Child("addresses").Index(j), a, known)...)
		}
		for j, a := range subset.NotReadyAddresses {
			errs = append(errs, endpointAddress(path.Child("notReadyAddresses").Index(j), a, known)...)
		}
		for j, p := range subset.Ports {
			at := path.Child("ports").Index(j)
			if p.Name == "" && len(subset.Ports) > 1 {
				errs = append(errs, field.Required(at.Child("name"), ""))
			}
			errs = slices.Concat(errs,
				check.UnsetOrNamed(at.Child("name"), p.Name, validation.IsDNS1123Label),
				check.Port(at.Child("port"), p.Port),
				protocol(at.Child("protocol"), p.Protocol),
				appProtocol(at.Child("appProtocol"), p.AppProtocol))
		}
	}
	return errs
}

func endpointAddress(path *field.Path, a corev1.EndpointAddress, known []string) field.ErrorList {
	errs := check.IP(path.Child("ip"), a.IP, known)
	errs = append(errs, check.UnsetOrNamed(path.Child("hostname"), a.Hostname, validation.IsDNS1123Label)...)
	errs = append(errs, check.NilOrNamed(path.Child("nodeName"), a.NodeName, check.Subdomain)...)
	return append(errs, check.OrdinaryIP(path.Child("ip"), a.IP)...)
}

func endpointsWarnings(next, _ kind.Object) []string {
	var warnings []string
	for i, subset := range next.(*corev1.Endpoints).Subsets {
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
