// Package policy holds the kinds by which others are limited and ranked.
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
