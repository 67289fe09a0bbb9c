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
	None   = "none"   // all containers run on all processors
	Static = "static" // guaranteed pods' containers that ask for whole processors get their own
)

// The options of policy static, which all are off by default.
const (
	fullCores   = "full-pcpus-only"
	acrossNUMA  = "distribute-cpus-across-numa"
	bySockets   = "align-by-socket"
	acrossCores = "distribute-cpus-across-cores"
	strict      = "strict-cpu-reservation"
	uncore      = "prefer-align-cpus-by-uncorecache"
)

// Choices are the options of policy static.
type Choices struct {
	FullCores   bool // whole cores only; a request for a part of one is refused
	AcrossNUMA  bool // where more than one NUMA node is needed, the same from each
	BySocket    bool // nodes of one socket are as good as one node
	AcrossCores bool // threads of different cores
	Strict      bool // nobody runs on reserved processors
	Uncore      bool // within one cache of the third level, if that can be
}

// Config is what kubelet's flags of the CPU manager say. The zero value is policy
// none.
type Config struct {
	Policy  string
	Options map[string]string
	Period  time.Duration // between looks at whether containers run where they should; 0: 10 s
}

// Flags are kubelet's.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Policy, "cpu-manager-policy", None, "CPU manager policy: none, or static, which gives exclusive CPUs to containers of Guaranteed pods that request whole CPUs. static requires reserved CPUs.")
	f.StringToStringVar(&c.Options, "cpu-manager-policy-options", nil, "Options of the CPU manager policy static, as NAME=true: "+strings.Join(slices.Sorted(maps.Keys(new(Choices).named())), ", "))
	f.DurationVar(&c.Period, "cpu-manager-reconcile-period", defaultPeriod, "Interval at which the CPU manager verifies the CPUs of containers.")
}

// defaultPeriod is upstream's.
const defaultPeriod = 10 * time.Second

// named are the options by their names.
func (o *Choices) named() map[string]*bool {
	return map[string]*bool{
		fullCores: &o.FullCores, acrossNUMA: &o.AcrossNUMA, bySockets: &o.BySocket,
		acrossCores: &o.AcrossCores, strict: &o.Strict, uncore: &o.Uncore,
	}
}

// Off reports whether nobody gets processors for itself.
func (c *Config) Off() bool { return c.Policy != Static }

// choices reads the options.
func (c *Config) choices() (Choices, error) {
	var o Choices
	var errs []error
	known := o.named()
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		to, ok := known[name]
		if !ok {
			errs = append(errs, fmt.Errorf("--cpu-manager-policy-options: there is no %q; known: %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			continue
		}
		on, err := strconv.ParseBool(c.Options[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("--cpu-manager-policy-options: %s: %q is neither true nor false", name, c.Options[name]))
		}
		*to = on
	}
	return o, errors.Join(errs...)
}

// Check says what is wrong with the flags' values. near is --topology-manager-policy.
func (c *Config) Check(near string) error {
	var errs []error
	if c.Policy != None && c.Policy != Static {
		errs = append(errs, fmt.Errorf("--cpu-manager-policy: %q is neither none nor static", c.Policy))
	}
	if c.Period <= 0 {
		errs = append(errs, fmt.Errorf("--cpu-manager-reconcile-period: %v is not above 0", c.Period))
	}
	o, err := c.choices()
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
	if o.BySocket && near == topology.SingleNode {
		errs = append(errs, fmt.Errorf("--cpu-manager-policy-options: %s and --topology-manager-policy=%s can not be used at the same time", bySockets, near))
	}
	return errors.Join(errs...)
}
