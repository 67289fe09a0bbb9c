// Package service contains the kinds Service, Endpoints and EndpointSlice.
//
// Package allocate allocates the cluster IPs and node ports of a Service before Validate runs.
package service

import "monopod/apiserver/registry/kind"

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		endpointsResource(),
		serviceResource(),
		endpointSliceResource(),
	}
}
