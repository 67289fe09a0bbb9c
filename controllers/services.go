package controllers

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/endpoints"
	"monopod/controllers/endpointslice"
	"monopod/controllers/endpointslicemirroring"
	"monopod/controllers/servicecidr"
	"monopod/controllers/serviceloadbalancer"
)

// Services configures the controllers of Services.
type Services struct {
	// ConcurrentServiceEndpointSyncs is --concurrent-service-endpoint-syncs; 0 means 5.
	ConcurrentServiceEndpointSyncs int `json:"concurrentServiceEndpointSyncs"`
	// MaxEndpointsPerSlice is --max-endpoints-per-slice; 0 means 100.
	MaxEndpointsPerSlice int `json:"maxEndpointsPerSlice"`
	// SliceUpdatesBatchPeriod is --endpointslice-updates-batch-period.
	SliceUpdatesBatchPeriod metav1.Duration `json:"endpointSliceUpdatesBatchPeriod"`

	// ConcurrentEndpointSyncs is --concurrent-endpoint-syncs; 0 means 5.
	ConcurrentEndpointSyncs int `json:"concurrentEndpointSyncs"`
	// UpdatesBatchPeriod is --endpoint-updates-batch-period.
	UpdatesBatchPeriod metav1.Duration `json:"endpointUpdatesBatchPeriod"`

	// MirroringConcurrentSyncs is --mirroring-concurrent-service-endpoint-syncs; 0 means 5.
	MirroringConcurrentSyncs int `json:"mirroringConcurrentServiceEndpointSyncs"`
	// MirroringMaxEndpointsPerSubset is --mirroring-max-endpoints-per-subset; 0 means 1000.
	MirroringMaxEndpointsPerSubset int `json:"mirroringMaxEndpointsPerSubset"`
	// MirroringUpdatesBatchPeriod is --mirroring-endpointslice-updates-batch-period.
	MirroringUpdatesBatchPeriod metav1.Duration `json:"mirroringEndpointUpdatesBatchPeriod"`

	// Ranges are the ranges of the cluster IPs; empty: the controller creates no ServiceCIDR.
	Ranges []netip.Prefix `json:"-"`

	// LoadBalancerPool is --load-balancer-pool.
	LoadBalancerPool string `json:"loadBalancerPool"`
}

// maxEndpoints is the maximum number of endpoints of an EndpointSlice (upstream's).
const maxEndpoints = 1000

func serviceControllers(c *Config) []Entry {
	s := &c.Services
	return []Entry{
		{Name: endpointslice.Name, Aliases: []string{"endpointslice-controller"}, Component: endpointslice.Component,
			Settings: []Setting{
				number(&s.ConcurrentServiceEndpointSyncs, "concurrent-service-endpoint-syncs", 5, 1,
					"Number of Services whose EndpointSlices are synced concurrently."),
				numberUpTo(maxEndpoints, &s.MaxEndpointsPerSlice, "max-endpoints-per-slice", 100, 1,
					"Maximum number of endpoints in an EndpointSlice, at most 1000. "+
						"More endpoints per slice mean fewer, larger slices."),
				batchPeriod(&s.SliceUpdatesBatchPeriod, "endpointslice-updates-batch-period",
					"Time for which changes of pods are collected before EndpointSlices are updated. "+
						"0: they are updated at once."),
			},
			New: fullOrError(endpointslice.New, endpointslice.Config{Workers: s.ConcurrentServiceEndpointSyncs,
				Max: s.MaxEndpointsPerSlice, BatchPeriod: s.SliceUpdatesBatchPeriod.Duration})},
		{Name: endpoints.Name, Aliases: []string{"endpoints-controller", "endpoints"}, Component: endpoints.Component,
			Settings: []Setting{
				number(&s.ConcurrentEndpointSyncs, "concurrent-endpoint-syncs", 5, 1,
					"Number of Services whose Endpoints are synced concurrently."),
				batchPeriod(&s.UpdatesBatchPeriod, "endpoint-updates-batch-period",
					"Time for which changes of pods are collected before Endpoints are updated. "+
						"0: they are updated at once."),
			},
			New: full(endpoints.New, endpoints.Config{
				Workers: s.ConcurrentEndpointSyncs, BatchPeriod: s.UpdatesBatchPeriod.Duration})},
		{Name: endpointslicemirroring.Name, Aliases: []string{"endpointslice-mirroring-controller"},
			Component: endpointslicemirroring.Component,
			Settings: []Setting{
				number(&s.MirroringConcurrentSyncs, "mirroring-concurrent-service-endpoint-syncs", 5, 1,
					"Number of Services whose Endpoints are mirrored to EndpointSlices concurrently."),
				numberUpTo(maxEndpoints, &s.MirroringMaxEndpointsPerSubset, "mirroring-max-endpoints-per-subset", 1000, 1,
					"Maximum number of addresses of a subset of Endpoints that are mirrored to an EndpointSlice, "+
						"at most 1000."),
				batchPeriod(&s.MirroringUpdatesBatchPeriod, "mirroring-endpointslice-updates-batch-period",
					"Time for which changes of Endpoints are collected before EndpointSlices are updated. "+
						"0: they are updated at once."),
			},
			New: fullOrError(endpointslicemirroring.New, endpointslicemirroring.Config{
				Workers: s.MirroringConcurrentSyncs, Max: s.MirroringMaxEndpointsPerSubset,
				BatchPeriod: s.MirroringUpdatesBatchPeriod.Duration})},
		{Name: servicecidr.Name, Aliases: []string{"service-cidr"}, Component: servicecidr.Component,
			New: full(servicecidr.New, s.Ranges)},
		{Name: serviceloadbalancer.Name, Aliases: []string{"service"}, Component: serviceloadbalancer.Component,
			Settings: []Setting{pool(&s.LoadBalancerPool)},
			New:      full(serviceloadbalancer.New, s.Pool())},
	}
}

// Pool returns the addresses of --load-balancer-pool; none: load balancers get the addresses of the nodes.
func (s Services) Pool() []netip.Prefix {
	pool, _ := serviceloadbalancer.ParsePool(s.LoadBalancerPool) // Check has accepted it
	return pool
}

func pool(at *string) Setting {
	const flag = "load-balancer-pool"
	return Setting{
		Flag:  flag,
		reset: func() { *at = "" },
		add: func(f *pflag.FlagSet) {
			f.StringVar(at, flag, *at, "CIDR ranges, separated by commas, of the addresses of Services of type "+
				"LoadBalancer: each Service gets one of each of its IP families. "+
				"Empty: they get the addresses of the nodes.")
		},
		check: func() error {
			if _, err := serviceloadbalancer.ParsePool(*at); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			return nil
		},
	}
}
