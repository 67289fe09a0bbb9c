// Package workload holds the kinds that controllers make pods from.
package workload

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		replicaSetResource(),
	}
}
