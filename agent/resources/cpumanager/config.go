package cpumanager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"monopod/agent/resources/topology"
)

// The policies.
const (
	None   = "none"   // all containers run on all CPUs
	Static = "static" // containers of Guaranteed pods with integer CPU requests get exclusive CPUs
)

// The options of policy static, all off by default.
const (
	fullCores   = "full-pcpus-only"
	acrossNUMA  = "distribute-cpus-across-numa"
	bySockets   = "align-by-socket"
	acrossCores = "distribute-cpus-across-cores"
	strict      = "strict-cpu-reservation"
	uncore      = "prefer-align-cpus-by-uncorecache"
)

// PolicyOptions are the options of policy static.
type PolicyOptions struct {
	FullCores   bool // allocate whole cores only; reject other requests
	AcrossNUMA  bool // if several NUMA nodes are needed, allocate the same number of CPUs from each
	BySocket    bool // align to sockets instead of NUMA nodes
	AcrossCores bool // allocate threads of different cores
	Strict      bool // run no container on reserved CPUs
	Uncore      bool // allocate CPUs that share an L3 cache if possible
}

// Config contains the values of kubelet's flags for the CPU manager. The zero value is policy none.
type Config struct {
	Policy  string
	Options map[string]string
	Period  time.Duration // interval at which the CPUs of containers are verified; 0: 10 s
}

// Flags adds kubelet's flags.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Policy, "cpu-manager-policy", None,
		"CPU manager policy: none, or static, which gives exclusive CPUs to containers of Guaranteed pods that request "+
			"whole CPUs. static requires reserved CPUs.")
	f.StringToStringVar(&c.Options, "cpu-manager-policy-options", nil,
		"Options of the CPU manager policy static, as NAME=true: "+
			strings.Join(slices.Sorted(maps.Keys(new(PolicyOptions).byName())), ", "))
	f.DurationVar(&c.Period, "cpu-manager-reconcile-period", defaultPeriod,
		"Interval at which the CPU manager verifies the CPUs of containers.")
}

// defaultPeriod is kubelet's default.
const defaultPeriod = 10 * time.Second

// byName returns the options by name.
func (o *PolicyOptions) byName() map[string]*bool {
	return map[string]*bool{
		fullCores: &o.FullCores, acrossNUMA: &o.AcrossNUMA, bySockets: &o.BySocket,
		acrossCores: &o.AcrossCores, strict: &o.Strict, uncore: &o.Uncore,
	}
}

// Off reports whether the policy is none.
func (c *Config) Off() bool { return c.Policy != Static }

// policyOptions parses the options.
func (c *Config) policyOptions() (PolicyOptions, error) {
	var o PolicyOptions
	var errs []error
	known := o.byName()
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		to, ok := known[name]
		if !ok {
			errs = append(errs,
				fmt.Errorf("--cpu-manager-policy-options: unknown option %q; known: %s", name,
					strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			continue
		}
		on, err := strconv.ParseBool(c.Options[name])
		if err != nil {
			errs = append(errs,
				fmt.Errorf("--cpu-manager-policy-options: %s: %q is neither true nor false", name, c.Options[name]))
		}
		*to = on
	}
	return o, errors.Join(errs...)
}

// Check validates the flags. topologyPolicy is --topology-manager-policy.
func (c *Config) Check(topologyPolicy string) error {
	var errs []error
	if c.Policy != None && c.Policy != Static {
		errs = append(errs, fmt.Errorf("--cpu-manager-policy must be none or static, got %q", c.Policy))
	}
	if c.Period <= 0 {
		errs = append(errs, fmt.Errorf("--cpu-manager-reconcile-period must be positive, got %v", c.Period))
	}
	o, err := c.policyOptions()
	errs = append(errs, err)
	if len(c.Options) > 0 && c.Policy == None {
		errs = append(errs, errors.New("--cpu-manager-policy-options: policy none has no options"))
	}
	exclude := func(a, b bool, x, y string) {
		if a && b {
			errs = append(errs, fmt.Errorf("--cpu-manager-policy-options: %s and %s can not be used at the same time", x, y))
		}
	}
	exclude(o.FullCores, o.AcrossCores, fullCores, acrossCores)
	exclude(o.AcrossNUMA, o.AcrossCores, acrossNUMA, acrossCores)
	exclude(o.Uncore, o.AcrossCores, uncore, acrossCores)
	exclude(o.Uncore, o.AcrossNUMA, uncore, acrossNUMA)
	if o.BySocket && topologyPolicy == topology.SingleNode {
		errs = append(errs,
			fmt.Errorf("--cpu-manager-policy-options: %s and --topology-manager-policy=%s can not be used at the same time",
				bySockets, topologyPolicy))
	}
	return errors.Join(errs...)
}
