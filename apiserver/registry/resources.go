package registry

import (
	"slices"

	"monopod/apiserver/registry/core"
	"monopod/apiserver/registry/policy"
	"monopod/apiserver/registry/rbac"
	"monopod/apiserver/registry/workload"
)

// Resources are all kinds served.
func Resources() []Resource {
	return slices.Concat(
		core.Resources(),
		workload.Resources(),
		policy.Resources(),
		rbac.Resources(),
	)
}
