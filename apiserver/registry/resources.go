package registry

import (
	"slices"

	"monopod/apiserver/client"
	"monopod/apiserver/registry/autoscaling"
	"monopod/apiserver/registry/batch"
	"monopod/apiserver/registry/certificates"
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

// Resources returns all served kinds.
func Resources() []Resource {
	return slices.Concat(
		core.Resources(),
		service.Resources(),
		network.Resources(),
		workload.Resources(),
		batch.Resources(),
		autoscaling.Resources(),
		certificates.Resources(),
		policy.Resources(),
		rbac.Resources(),
		review.Resources(),
		storage.Resources(),
		metrics.Resources(),
	)
}

// Served returns the resources that are stored under their own name, for controllers that work on
// objects of all kinds.
func Served(resources []Resource) []client.Kind {
	var out []client.Kind
	for i := range resources {
		if r := &resources[i]; r.Stored() {
			out = append(out, client.Kind{Resource: r.GVR, Kind: r.Kind, Namespaced: r.Namespaced})
		}
	}
	return out
}
