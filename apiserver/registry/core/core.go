// Package core defines the basic kinds: namespaces, nodes, pods, ConfigMaps,
// Secrets, service accounts, events and leases.
//
//   - eviction.go: implements the pods' subresource eviction: the pod is deleted if its disruption budget allows it
package core

import (
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// Resources are the kinds of this package, in the order discovery lists them.
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
