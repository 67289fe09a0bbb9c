package eviction

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is met while less than Value is free.
type Threshold struct {
	Signal Signal
	Value  Value
	Grace  time.Duration // of a soft threshold; hard: 0
	Soft   bool
	// Reclaim is the amount beyond Value that must be free before a met threshold is no longer met.
	Reclaim Value
}

// Policy contains the thresholds and the time limits of evictions.
type Policy struct {
	Thresholds       []Threshold
	MaxGrace         time.Duration // maximum for pods evicted for a soft threshold; 0: none
	TransitionPeriod time.Duration // how long a condition is kept after it was last observed
	// CriticalAnnotation means that pods in kube-system with the deprecated annotation are critical.
	CriticalAnnotation bool
}

// Options are the values of the flags.
type Options struct {
	Hard, Soft, SoftGrace, Reclaim map[string]string
	MaxGrace                       int // seconds
	TransitionPeriod               time.Duration
	FeatureGates                   map[string]string
}

// Default returns kubelet's defaults.
func Default() Options {
	return Options{
		Hard: map[string]string{
			string(Memory): "100Mi", string(NodeFs): "10%", string(NodeFsInodes): "5%",
			string(ImageFs): "15%", string(ImageFsInodes): "5%",
		},
		TransitionPeriod: 5 * time.Minute,
	}
}

// Flags adds kubelet's flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	*o = Default()
	f.Var(&thresholds{&o.Hard, "<"}, "eviction-hard",
		"Resources that must stay available; below a threshold pods are evicted at once. \"\": no threshold.")
	f.Var(&thresholds{&o.Soft, "<"}, "eviction-soft",
		"Resources that must stay available; below a threshold for longer than its grace period pods are evicted.")
	f.Var(&thresholds{&o.SoftGrace, "="}, "eviction-soft-grace-period",
		"Grace period of each signal of --eviction-soft, for example memory.available=1m30s.")
	f.IntVar(&o.MaxGrace, "eviction-max-pod-grace-period", o.MaxGrace,
		"Maximum termination grace period, in seconds, of a pod that is evicted for a soft threshold.")
	f.DurationVar(&o.TransitionPeriod, "eviction-pressure-transition-period", o.TransitionPeriod,
		"Duration for which the node keeps a pressure condition after the pressure has ended.")
	f.Var(&thresholds{&o.Reclaim, "="}, "eviction-minimum-reclaim",
		"Minimum amount to reclaim beyond the threshold of a resource, for example imagefs.available=2Gi.")
	f.Var(&thresholds{&o.FeatureGates, "="}, "feature-gates",
		"Feature gates. ExperimentalCriticalPodAnnotation=true: pods of kube-system with the annotation "+
			"scheduler.alpha.kubernetes.io/critical-pod are critical.")
}

// gateCritical is the only feature gate.
const gateCritical = "ExperimentalCriticalPodAnnotation"

// Policy parses the options. Errors name the flag.
func (o *Options) Policy() (Policy, error) {
	p := Policy{MaxGrace: time.Duration(o.MaxGrace) * time.Second, TransitionPeriod: o.TransitionPeriod}
	var errs []error
	reclaim, err := values("eviction-minimum-reclaim", o.Reclaim)
	errs = append(errs, err)
	hard, err := values("eviction-hard", o.Hard)
	errs = append(errs, err)
	soft, err := values("eviction-soft", o.Soft)
	errs = append(errs, err)
	graces, err := o.graces()
	errs = append(errs, err)
	for _, s := range Signals() {
		if v, ok := hard[s]; ok {
			p.Thresholds = append(p.Thresholds, Threshold{Signal: s, Value: v, Reclaim: reclaim[s]})
		}
		if v, ok := soft[s]; ok {
			p.Thresholds = append(p.Thresholds,
				Threshold{Signal: s, Value: v, Reclaim: reclaim[s], Soft: true, Grace: graces[s]})
		}
	}
	if o.MaxGrace < 0 {
		errs = append(errs, fmt.Errorf("--eviction-max-pod-grace-period must not be negative, got %d", o.MaxGrace))
	}
	if o.TransitionPeriod < 0 {
		errs = append(errs,
			fmt.Errorf("--eviction-pressure-transition-period must not be negative, got %v", o.TransitionPeriod))
	}
	p.CriticalAnnotation, err = o.gate()
	return p, errors.Join(append(errs, err)...)
}

// graces returns the grace periods of the soft thresholds; each must have one.
func (o *Options) graces() (map[Signal]time.Duration, error) {
	out := map[Signal]time.Duration{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.SoftGrace)) {
		d, err := time.ParseDuration(o.SoftGrace[name])
		switch {
		case !Signal(name).Valid():
			errs = append(errs, unknown("eviction-soft-grace-period", name))
		case err != nil || d < 0:
			errs = append(errs,
				fmt.Errorf("--eviction-soft-grace-period: %s: %q is not a duration such as 1m30s", name, o.SoftGrace[name]))
		}
		out[Signal(name)] = d
	}
	for _, name := range slices.Sorted(maps.Keys(o.Soft)) {
		if _, ok := out[Signal(name)]; !ok {
			errs = append(errs,
				fmt.Errorf("--eviction-soft: %s has no grace period: name it in --eviction-soft-grace-period", name))
		}
	}
	return out, errors.Join(errs...)
}

func (o *Options) gate() (on bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if name != gateCritical {
			return false, fmt.Errorf("--feature-gates: unknown gate %q; known: %s", name, gateCritical)
		}
		if on, err = strconv.ParseBool(o.FeatureGates[name]); err != nil {
			return false, fmt.Errorf("--feature-gates: %s: %q is neither true nor false", name, o.FeatureGates[name])
		}
	}
	return on, nil
}

func unknown(flag, name string) error {
	var known []string
	for _, s := range Signals() {
		known = append(known, string(s))
	}
	return fmt.Errorf("--%s: unknown signal %q; known: %s", flag, name, strings.Join(known, ", "))
}

// values parses a flag's value for each signal. Like upstream, 0, 0 % and 100 % disable a signal.
func values(flag string, text map[string]string) (map[Signal]Value, error) {
	out := map[Signal]Value{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(text)) {
		if !Signal(name).Valid() {
			errs = append(errs, unknown(flag, name))
			continue
		}
		v, off, err := parseValue(text[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %s: %w", flag, name, err))
		} else if !off {
			out[Signal(name)] = v
		}
	}
	return out, errors.Join(errs...)
}

func parseValue(text string) (v Value, off bool, err error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		v.Percent, err = strconv.ParseFloat(number, 64)
		if within := v.Percent >= 0 && v.Percent <= 100; err != nil || !within { // NaN is not
			return v, false, fmt.Errorf("%q is not a percentage between 0%% and 100%%", text)
		}
		return v, v.Percent == 0 || v.Percent == 100, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return v, false, fmt.Errorf("%q is neither an amount such as 100Mi nor a percentage such as 10%%", text)
	}
	v.Quantity = q.Value()
	return v, q.IsZero(), nil
}

// thresholds is a flag: signal<value pairs, separated by commas. Like upstream, a value replaces all defaults.
type thresholds struct {
	to    *map[string]string
	split string
}

var _ pflag.Value = (*thresholds)(nil)

// String implements pflag.Value.
func (t *thresholds) String() string {
	if t.to == nil {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*t.to)) {
		out = append(out, name+t.split+(*t.to)[name])
	}
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (t *thresholds) Type() string { return "list" }

// Set implements pflag.Value.
func (t *thresholds) Set(text string) error {
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, t.split)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return fmt.Errorf("%q is not of the form name%svalue", part, t.split)
		}
		if _, twice := out[name]; twice {
			return fmt.Errorf("%s is given twice", name)
		}
		out[name] = value
	}
	*t.to = out
	return nil
}
