package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	usage "monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/admissionregistration"
	"monopod/apiserver/registry/apiservice"
	"monopod/apiserver/registry/autoscaling"
	"monopod/apiserver/registry/batch"
	"monopod/apiserver/registry/certificates"
	"monopod/apiserver/registry/core"
	"monopod/apiserver/registry/custom"
	"monopod/apiserver/registry/dra"
	"monopod/apiserver/registry/flowcontrol"
	"monopod/apiserver/registry/network"
	"monopod/apiserver/registry/policy"
	"monopod/apiserver/registry/rbac"
	"monopod/apiserver/registry/service"
	"monopod/apiserver/registry/storage"
	"monopod/apiserver/registry/workload"
)

// Resources returns all served kinds.
func Resources() []Resource {
	var all []Resource
	// metrics.k8s.io is not built in, because users may install a server for it.
	builtIn := func(gv schema.GroupVersion) bool {
		return gv != usage.GroupVersion() &&
			slices.ContainsFunc(all, func(r Resource) bool { return r.GVR.GroupVersion() == gv })
	}
	all = slices.Concat(
		core.Resources(),
		apiservice.Resources(builtIn),
		service.Resources(),
		network.Resources(),
		workload.Resources(),
		batch.Resources(),
		autoscaling.Resources(),
		certificates.Resources(),
		policy.Resources(),
		rbac.Resources(),
		reviewResources(),
		storage.Resources(),
		metricsResources(),
		custom.Resources(),
		admissionregistration.Resources(),
		flowcontrol.Resources(),
		dra.Resources(),
	)
	return all
}

// ServedBy returns the kinds that r serves, for controllers that handle all kinds.
func ServedBy(r *Registry) client.Kinds {
	return func() ([]client.Kind, <-chan struct{}) {
		changed := r.Changed()
		return Served(r.Resources()), changed
	}
}

// Served returns the stored resources, for controllers that handle all kinds. A custom kind has one entry for all its
// versions.
func Served(resources []Resource) []client.Kind {
	var out []client.Kind
	seen := map[schema.GroupResource]int{} // custom kinds, which have one Resource for each version
	for i := range resources {
		r := &resources[i]
		at, again := seen[r.GVR.GroupResource()]
		switch {
		case again && r.View.Of == r.GVR: // the stored version needs no conversion
			out[at].Resource = r.GVR
		case again:
		case r.Stored() || r.Schema != nil:
			if r.Schema != nil {
				seen[r.GVR.GroupResource()] = len(out)
			}
			out = append(out, client.Kind{Resource: r.GVR, Kind: r.Kind, Namespaced: r.Namespaced, Scale: r.Serves("scale")})
		}
	}
	return out
}
