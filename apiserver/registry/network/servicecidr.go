package network

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func serviceCIDRResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ServiceCIDRs,
		Kind:         "ServiceCIDR",
		Controller:   "service-cidr-controller",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(networkingv1.ServiceCIDR) },
		Prepare: kind.WithoutGeneration(
			func(obj kind.Object) (*networkingv1.ServiceCIDRSpec, *networkingv1.ServiceCIDRStatus) {
				cidr := obj.(*networkingv1.ServiceCIDR)
				return &cidr.Spec, &cidr.Status
			}),
		Validate: serviceCIDRValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("CIDRs", "Ranges of cluster IPs.",
				func(c *networkingv1.ServiceCIDR) string { return strings.Join(c.Spec.CIDRs, ",") }),
			table.Age(),
		},
	}
}

// serviceCIDRValidate allows one range, or one of each IP family. An update can only add a range of the second family.
func serviceCIDRValidate(next, cur kind.Object, subresource string) field.ErrorList {
	cidr := next.(*networkingv1.ServiceCIDR)
	if subresource == "status" {
		return nil // as upstream, whose controller sets no reason
	}
	path := field.NewPath("spec", "cidrs")
	all := cidr.Spec.CIDRs
	if cur != nil {
		if old := cur.(*networkingv1.ServiceCIDR).Spec.CIDRs; !slices.Equal(old, all) &&
			(len(old) != 1 || len(all) != 2 || old[0] != all[0]) {
			return field.ErrorList{field.Invalid(path, all,
				"field is immutable, except that a range of the other IP family may be added")}
		}
	}
	var errs field.ErrorList
	for i, text := range all {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), text)...)
	}
	switch {
	case len(all) == 0:
		errs = append(errs, field.Required(path, "at least one CIDR required"))
	case len(all) > 2:
		errs = append(errs, field.Invalid(path, all, "may only hold up to 2 values"))
	case len(all) == 2 && len(errs) == 0:
		if dual, err := netutils.IsDualStackCIDRStrings(all); err != nil || !dual {
			errs = append(errs, field.Invalid(path, all,
				"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/96"))
		}
	}
	return errs
}

func ipAddressResource() kind.Resource {
	return kind.Resource{
		GVR:        client.IPAddresses,
		Kind:       "IPAddress",
		Controller: "service-cidr-controller",
		ShortNames: []string{"ip"},
		ValidName:  ipAddressName,
		New:        func() kind.Object { return new(networkingv1.IPAddress) },
		Prepare:    ipAddressPrepare,
		Validate:   ipAddressValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("ParentRef", "The object that uses the address.",
				func(ip *networkingv1.IPAddress) string { return parent(ip.Spec.ParentRef) }),
			table.Age(),
		},
	}
}

func ipAddressPrepare(next, cur kind.Object, _ string) {
	ip := next.(*networkingv1.IPAddress)
	if cur == nil {
		ip.Generation = 1
		return
	}
	old := cur.(*networkingv1.IPAddress)
	if ip.Generation = old.Generation; !equality.Semantic.DeepEqual(ip.Spec, old.Spec) {
		ip.Generation++
	}
}

// parent returns "resource.group/namespace/name" without empty parts.
func parent(ref *networkingv1.ParentReference) string {
	if ref == nil {
		return table.None
	}
	resource := ref.Resource
	if ref.Group != "" {
		resource += "." + ref.Group
	}
	if ref.Namespace != "" {
		return resource + "/" + ref.Namespace + "/" + ref.Name
	}
	return resource + "/" + ref.Name
}

// ipAddressName accepts only the canonical form of an address.
func ipAddressName(name string, _ bool) []string {
	ip, err := netip.ParseAddr(name)
	switch {
	case err != nil || ip.Zone() != "":
		return []string{"must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"}
	case ip.String() != name || ip.Is4In6():
		return []string{"must be in canonical form (\"" + ip.Unmap().String() + "\")"}
	}
	return nil
}

func ipAddressValidate(next, cur kind.Object, _ string) field.ErrorList {
	ref, path := next.(*networkingv1.IPAddress).Spec.ParentRef, field.NewPath("spec", "parentRef")
	var errs field.ErrorList
	if cur != nil {
		errs = check.Immutable(path, ref, cur.(*networkingv1.IPAddress).Spec.ParentRef)
	}
	if ref == nil {
		return append(errs, field.Required(path, ""))
	}
	return slices.Concat(errs,
		check.UnsetOrNamed(path.Child("group"), ref.Group, validation.IsDNS1123Subdomain),
		check.Named(path.Child("resource"), ref.Resource, content.IsPathSegmentName),
		check.Named(path.Child("name"), ref.Name, content.IsPathSegmentName),
		check.UnsetOrNamed(path.Child("namespace"), ref.Namespace, content.IsPathSegmentName))
}
