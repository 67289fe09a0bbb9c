package controllers

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/record"
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

	// Ranges are those of the cluster IPs; empty: there is no ServiceCIDR for them.
	Ranges []netip.Prefix `json:"-"`

	// LoadBalancerPool is --load-balancer-pool.
	LoadBalancerPool string `json:"loadBalancerPool"`
}

// maxEndpoints is the maximum number of endpoints of an EndpointSlice (upstream's).
const maxEndpoints = 1000

// serviceControllers are the controllers of Services.
func serviceControllers() []Entry {
	return []Entry{
		{Name: endpointslice.Name, Aliases: []string{"endpointslice-controller"}, Component: endpointslice.Component,
			Settings: func(c *Config) []Setting {
				s := &c.Services
				return []Setting{
					number(&s.ConcurrentServiceEndpointSyncs, "concurrent-service-endpoint-syncs", 5, 1,
						"Number of Services whose EndpointSlices are synced concurrently."),
					within(number(&s.MaxEndpointsPerSlice, "max-endpoints-per-slice", 100, 1,
						"Maximum number of endpoints in an EndpointSlice, at most 1000. More endpoints per slice mean fewer, larger slices."), &s.MaxEndpointsPerSlice, maxEndpoints),
					period(&s.SliceUpdatesBatchPeriod, "endpointslice-updates-batch-period",
						"Time for which changes of pods are collected before EndpointSlices are updated. 0: they are updated at once."),
				}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				s := c.Services
				return endpointslice.New(d, e,
					endpointslice.Config{Workers: s.ConcurrentServiceEndpointSyncs, Max: s.MaxEndpointsPerSlice,
						BatchPeriod: s.SliceUpdatesBatchPeriod.Duration})
			}},
		{Name: endpoints.Name, Aliases: []string{"endpoints-controller", "endpoints"}, Component: endpoints.Component,
			Settings: func(c *Config) []Setting {
				s := &c.Services
				return []Setting{
					number(&s.ConcurrentEndpointSyncs, "concurrent-endpoint-syncs", 5, 1,
						"Number of Services whose Endpoints are synced concurrently."),
					period(&s.UpdatesBatchPeriod, "endpoint-updates-batch-period",
						"Time for which changes of pods are collected before Endpoints are updated. 0: they are updated at once."),
				}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return endpoints.New(d, e,
					endpoints.Config{Workers: c.Services.ConcurrentEndpointSyncs,
						BatchPeriod: c.Services.UpdatesBatchPeriod.Duration}), nil
			}},
		{Name: endpointslicemirroring.Name, Aliases: []string{"endpointslice-mirroring-controller"},
			Component: endpointslicemirroring.Component,
			Settings: func(c *Config) []Setting {
				s := &c.Services
				return []Setting{
					number(&s.MirroringConcurrentSyncs, "mirroring-concurrent-service-endpoint-syncs", 5, 1,
						"Number of Services whose Endpoints are mirrored to EndpointSlices concurrently."),
					within(number(&s.MirroringMaxEndpointsPerSubset, "mirroring-max-endpoints-per-subset", 1000, 1,
						"Maximum number of addresses of a subset of Endpoints that are mirrored to an EndpointSlice, at most 1000."),
						&s.MirroringMaxEndpointsPerSubset, maxEndpoints),
					period(&s.MirroringUpdatesBatchPeriod, "mirroring-endpointslice-updates-batch-period",
						"Time for which changes of Endpoints are collected before EndpointSlices are updated. 0: they are updated at once."),
				}
			},
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				s := c.Services
				return endpointslicemirroring.New(d, e,
					endpointslicemirroring.Config{Workers: s.MirroringConcurrentSyncs, Max: s.MirroringMaxEndpointsPerSubset,
						BatchPeriod: s.MirroringUpdatesBatchPeriod.Duration})
			}},
		{Name: servicecidr.Name, Aliases: []string{"service-cidr"}, Component: servicecidr.Component,
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return servicecidr.New(d, e, c.Services.Ranges), nil
			}},
		{Name: serviceloadbalancer.Name, Aliases: []string{"service"}, Component: serviceloadbalancer.Component,
			Settings: func(c *Config) []Setting { return []Setting{pool(&c.Services.LoadBalancerPool)} },
			New: func(d follow.Deps, e record.Eventer, c Config) (follow.Controller, error) {
				return serviceloadbalancer.New(d, e, c.Services.Pool()), nil
			}},
	}
}

// Pool returns the addresses of load balancers that no machine has; none if they are those of the nodes.
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
			f.StringVar(at, flag, *at,
				"CIDR ranges, separated by commas, of the addresses of Services of type LoadBalancer: each Service gets one of each of its IP families. Empty: they get the addresses of the nodes.")
		},
		check: func() error {
			if _, err := serviceloadbalancer.ParsePool(*at); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			return nil
		},
	}
}

// within limits a number to a maximum, too.
func within(s Setting, at *int, most int) Setting {
	least := s.check
	s.check = func() error {
		if *at > most {
			return fmt.Errorf("--%s must be at most %d, got %d", s.Flag, most, *at)
		}
		return least()
	}
	return s
}

// period returns a setting that must not be negative; its default is 0.
func period(at *metav1.Duration, flag string, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { at.Duration = 0 },
		add:   func(f *pflag.FlagSet) { f.DurationVar(&at.Duration, flag, at.Duration, usage) },
		check: func() error {
			if at.Duration < 0 || at.Duration > time.Hour {
				return fmt.Errorf("--%s must be between 0s and 1h, got %s", flag, at.Duration)
			}
			return nil
		},
	}
}
