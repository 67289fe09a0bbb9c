// Package core contains the basic kinds: namespaces, nodes, pods, ConfigMaps, Secrets, service accounts, events and
// leases.
//
//   - eviction.go: the pods' subresource eviction, which deletes a pod if its disruption budget allows it
package core

import (
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		bindingResource(),
		componentStatusResource(),
		configMapResource(),
		eventResource(),
		namespaceResource(),
		nodeResource(),
		pod.Resource(evictionSubresource()),
		podTemplateResource(),
		secretResource(),
		serviceAccountResource(),
		newEventResource(),
		leaseResource(),
	}
}
