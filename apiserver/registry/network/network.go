// Package network holds the kinds that lead traffic into the cluster and narrow it
// inside: Ingresses, their classes, and network policies.
package network

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		ingressResource(),
		ingressClassResource(),
		networkPolicyResource(),
	}
}
