// Package workload contains the kinds that keep a number of pods running, such as
// Deployment and StatefulSet, and ControllerRevision.
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
