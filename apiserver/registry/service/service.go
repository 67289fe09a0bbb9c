// Package service holds Services and the endpoints behind them.
//
// What a Service is given by the cluster (addresses, ports of the nodes) is
// chosen by package allocate before Validate sees it.
package service

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		endpointsResource(),
		serviceResource(),
		endpointSliceResource(),
	}
}
