// Package policy contains the kinds PodDisruptionBudget, LimitRange, ResourceQuota, PriorityClass and RuntimeClass.
package policy

import "monopod/apiserver/registry/kind"

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		podDisruptionBudgetResource(),
		limitRangeResource(),
		resourceQuotaResource(),
		priorityClassResource(),
		runtimeClassResource(),
	}
}
