package registry

import (
	"slices"

	"monopod/apiserver/registry/autoscaling"
	"monopod/apiserver/registry/batch"
	"monopod/apiserver/registry/core"
	"monopod/apiserver/registry/metrics"
	"monopod/apiserver/registry/network"
	"monopod/apiserver/registry/policy"
	"monopod/apiserver/registry/rbac"
	"monopod/apiserver/registry/review"
	"monopod/apiserver/registry/service"
	"monopod/apiserver/registry/storage"
	"monopod/apiserver/registry/workload"
)

// Resources are all kinds served.
func Resources() []Resource {
	return slices.Concat(
		core.Resources(),
		service.Resources(),
		network.Resources(),
		workload.Resources(),
		batch.Resources(),
		autoscaling.Resources(),
		policy.Resources(),
		rbac.Resources(),
		review.Resources(),
		storage.Resources(),
		metrics.Resources(),
	)
}
