package eviction_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"monopod/agent/pressure/eviction"
)

func parse(t *testing.T, args ...string) (eviction.Policy, error) {
	t.Helper()
	var o eviction.Options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Flags(f)
	if err := f.Parse(args); err != nil {
		return eviction.Policy{}, err
	}
	return o.Policy()
}

func TestDefaultsEqualKubelets(t *testing.T) {
	t.Parallel()
	p, err := parse(t)
	want := []eviction.Threshold{
		{Signal: eviction.Memory, Value: eviction.Value{Quantity: 100 << 20}},
		{Signal: eviction.NodeFs, Value: eviction.Value{Percent: 10}},
		{Signal: eviction.NodeFsInodes, Value: eviction.Value{Percent: 5}},
		{Signal: eviction.ImageFs, Value: eviction.Value{Percent: 15}},
		{Signal: eviction.ImageFsInodes, Value: eviction.Value{Percent: 5}},
	}
	if err != nil || !slices.Equal(p.Thresholds, want) || p.TransitionPeriod != 5*time.Minute || p.MaxGrace != 0 ||
		p.CriticalAnnotation {
		t.Errorf("policy %+v, error %v", p, err)
	}
}

func TestFlagsOverrideDefaults(t *testing.T) {
	t.Parallel()
	p, err := parse(t,
		"--eviction-hard=memory.available<1Gi,pid.available<10%,nodefs.available<0,imagefs.available<100%",
		"--eviction-soft=memory.available<2Gi", "--eviction-soft-grace-period=memory.available=1m30s",
		"--eviction-minimum-reclaim=memory.available=500Mi", "--eviction-max-pod-grace-period=60",
		"--feature-gates=ExperimentalCriticalPodAnnotation=true")
	more := eviction.Value{Quantity: 500 << 20}
	want := []eviction.Threshold{
		{Signal: eviction.Memory, Value: eviction.Value{Quantity: 1 << 30}, Reclaim: more},
		{Signal: eviction.Memory, Value: eviction.Value{Quantity: 2 << 30}, Reclaim: more, Soft: true,
			Grace: 90 * time.Second},
		{Signal: eviction.PID, Value: eviction.Value{Percent: 10}},
	}
	if err != nil || !slices.Equal(p.Thresholds, want) || p.MaxGrace != time.Minute || !p.CriticalAnnotation {
		t.Errorf("policy %+v, error %v", p, err)
	}
	if p, err = parse(t, "--eviction-hard="); err != nil || len(p.Thresholds) > 0 {
		t.Errorf("policy without thresholds: %+v, error %v", p, err)
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--eviction-hard=memory.free<1Gi":                                                 `--eviction-hard: unknown signal "memory.free"`,
		"--eviction-hard=memory.available<lots":                                           `--eviction-hard: memory.available: "lots" is neither`,
		"--eviction-hard=memory.available<-1":                                             `"-1" is neither`,
		"--eviction-hard=memory.available<101%":                                           `"101%" is not a percentage`,
		"--eviction-hard=memory.available<NaN%":                                           `"NaN%" is not a percentage`,
		"--eviction-hard=memory.available=1Gi":                                            `"memory.available=1Gi" is not of the form name<value`,
		"--eviction-hard=memory.available<1,memory.available<2":                           "is given twice",
		"--eviction-soft=memory.available<1Gi":                                            "memory.available has no grace period",
		"--eviction-soft-grace-period=x=1s":                                               `--eviction-soft-grace-period: unknown signal "x"`,
		"--eviction-soft=pid.available<1 --eviction-soft-grace-period=pid.available=soon": `"soon" is not a duration`,
		"--eviction-minimum-reclaim=memory.available=x":                                   "--eviction-minimum-reclaim: memory.available",
		"--eviction-max-pod-grace-period=-1":                                              "--eviction-max-pod-grace-period must not be negative, got -1",
		"--eviction-pressure-transition-period=-1s":                                       "--eviction-pressure-transition-period must not be negative, got -1s",
		"--feature-gates=Other=true":                                                      `unknown gate "Other"`,
		"--feature-gates=ExperimentalCriticalPodAnnotation=perhaps":                       `"perhaps" is neither true nor false`,
	} {
		if _, err := parse(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
