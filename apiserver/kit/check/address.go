package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IP validates an address in one of the older fields. Addresses in known are stored already and remain valid.
func IP(path *field.Path, ip string, known []string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, ip, true, known)
}

// CIDR validates a range of addresses. Ranges in known are stored already and remain valid.
func CIDR(path *field.Path, cidr string, known []string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, cidr, true, known)
}

// OrdinaryIP requires an address to which traffic can be sent. Unspecified, loopback and link-local addresses would
// lead back to the node.
func OrdinaryIP(path *field.Path, text string) field.ErrorList {
	ip := netutils.ParseIPSloppy(text)
	switch {
	case ip == nil:
		return field.ErrorList{field.Invalid(path, text, "must be a valid IP address")}
	case ip.IsUnspecified():
		return field.ErrorList{field.Invalid(path, text, fmt.Sprintf("may not be unspecified (%v)", text))}
	case ip.IsLoopback():
		return field.ErrorList{field.Invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case ip.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case ip.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, text,
			"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

// NilOrNamed validates a name if there is one, even an empty one.
func NilOrNamed(path *field.Path, name *string, valid func(string) []string) field.ErrorList {
	if name == nil {
		return nil
	}
	return Invalid(path, *name, valid(*name))
}

// Port requires the number of a port.
func Port(path *field.Path, port int32) field.ErrorList {
	return Invalid(path, port, validation.IsValidPortNum(int(port)))
}

// PortOrName validates the number or the name of a port.
func PortOrName(path *field.Path, port intstr.IntOrString) field.ErrorList {
	if port.Type == intstr.Int {
		return Port(path, port.IntVal)
	}
	return Invalid(path, port.StrVal, validation.IsValidPortName(port.StrVal))
}

// BalancerAddress validates an address and a name, either of which may be empty.
func BalancerAddress(path *field.Path, ip, hostname string, known []string) field.ErrorList {
	var errs field.ErrorList
	if ip != "" {
		errs = append(errs, IP(path.Child("ip"), ip, known)...)
	}
	if hostname == "" {
		return errs
	}
	at := path.Child("hostname")
	errs = append(errs, Invalid(at, hostname, validation.IsDNS1123Subdomain(hostname))...)
	if netutils.ParseIPSloppy(hostname) != nil {
		errs = append(errs, field.Invalid(at, hostname, "must be a DNS name, not an IP address"))
	}
	return errs
}
