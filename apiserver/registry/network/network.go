// Package network contains the kinds Ingress, IngressClass, NetworkPolicy, ServiceCIDR and IPAddress.
package network

import "monopod/apiserver/registry/kind"

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		ingressResource(),
		ingressClassResource(),
		networkPolicyResource(),
		serviceCIDRResource(),
		ipAddressResource(),
	}
}
