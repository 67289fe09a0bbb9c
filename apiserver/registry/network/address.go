package network

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// legacyIP checks an address in one of the older fields; those in known were
// stored before and stay.
func legacyIP(path *field.Path, ip string, known []string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, ip, true, known)
}

func legacyCIDR(path *field.Path, cidr string, known []string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, cidr, true, known)
}

// ordinaryIP is an address that traffic can be sent to: neither unspecified nor
// loopback nor link-local, which would lead back to the node itself.
func ordinaryIP(path *field.Path, text string) field.ErrorList {
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
		return field.ErrorList{field.Invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}
