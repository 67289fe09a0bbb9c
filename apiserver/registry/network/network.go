// Package network defines Ingress, IngressClass, NetworkPolicy, ServiceCIDR and IPAddress.
package network

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		ingressResource(),
		ingressClassResource(),
		networkPolicyResource(),
		serviceCIDRResource(),
		ipAddressResource(),
	}
}
