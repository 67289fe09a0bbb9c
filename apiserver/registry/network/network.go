// Package network holds the kinds by which pods are reached: Services, the
// endpoints behind them, Ingresses, and the policies that narrow it.
//
// What a Service is given by the cluster (addresses, ports of the nodes) is
// chosen by package allocate before Validate sees it.
package network

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		endpointsResource(),
		serviceResource(),
		endpointSliceResource(),
		ingressResource(),
		ingressClassResource(),
		networkPolicyResource(),
	}
}
