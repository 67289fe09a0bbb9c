// Package workload holds the kinds that keep a number of pods running: from
// replication controllers to stateful sets, and the revisions of their templates.
package workload

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		replicationControllerResource(),
		controllerRevisionResource(),
		daemonSetResource(),
		deploymentResource(),
		replicaSetResource(),
		statefulSetResource(),
	}
}
