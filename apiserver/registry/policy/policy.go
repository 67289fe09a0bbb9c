// Package policy contains PodDisruptionBudget, LimitRange, ResourceQuota,
// PriorityClass and RuntimeClass.
package policy

import "monopod/apiserver/registry/kind"

// Resources are the kinds of this package, in the order discovery lists them.
func Resources() []kind.Resource {
	return []kind.Resource{
		podDisruptionBudgetResource(),
		limitRangeResource(),
		resourceQuotaResource(),
		priorityClassResource(),
		runtimeClassResource(),
	}
}
