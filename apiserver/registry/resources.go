package registry

// Resources are all kinds served, in the order discovery lists them.
func Resources() []Resource {
	return []Resource{
		configMapResource(),
		eventResource(),
		namespaceResource(),
		nodeResource(),
		podResource(),
		secretResource(),
		serviceAccountResource(),
		replicaSetResource(),
		leaseResource(),
		priorityClassResource(),
	}
}
