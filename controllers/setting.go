package controllers

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Setting is one value of Config with a flag.
type Setting struct {
	Flag  string
	reset func()               // sets its default
	add   func(*pflag.FlagSet) // adds the flag, whose default is the current value
	check func() error
}

// number returns a setting that must be at least min.
func number(at *int, flag string, value, min int, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { *at = value },
		add:   func(f *pflag.FlagSet) { f.IntVar(at, flag, *at, usage) },
		check: func() error {
			if *at < min {
				return fmt.Errorf("--%s must be at least %d, got %d", flag, min, *at)
			}
			return nil
		},
	}
}

// workers returns the setting of how many objects a controller syncs concurrently.
func workers(at *int, flag string, value int, objects string) Setting {
	return number(at, flag, value, 1, "Number of "+objects+" that are synced concurrently.")
}

// numberUpTo returns a setting that must be at least min and at most max.
func numberUpTo(max int, at *int, flag string, value, min int, usage string) Setting {
	s := number(at, flag, value, min, usage)
	checkMin := s.check
	s.check = func() error {
		if *at > max {
			return fmt.Errorf("--%s must be at most %d, got %d", flag, max, *at)
		}
		return checkMin()
	}
	return s
}

// duration returns a setting that must be positive.
func duration(at *metav1.Duration, flag string, value time.Duration, usage string) Setting {
	return longer(0, at, flag, value, usage)
}

// longer returns a setting that must be longer than min.
func longer(min time.Duration, at *metav1.Duration, flag string, value time.Duration, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { at.Duration = value },
		add:   func(f *pflag.FlagSet) { f.DurationVar(&at.Duration, flag, at.Duration, usage) },
		check: func() error {
			if at.Duration <= min {
				return fmt.Errorf("--%s must be longer than %s, got %s", flag, min, at.Duration)
			}
			return nil
		},
	}
}

// share returns a setting that must not be negative.
func share(at *float64, flag string, value float64, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { *at = value },
		add:   func(f *pflag.FlagSet) { f.Float64Var(at, flag, *at, usage) },
		check: func() error {
			if !(*at >= 0) { // NaN too
				return fmt.Errorf("--%s must not be negative, got %v", flag, *at)
			}
			return nil
		},
	}
}

// batchPeriod returns a setting of 0 to 1 hour; its default is 0.
func batchPeriod(at *metav1.Duration, flag string, usage string) Setting {
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

// toggle returns a setting that is off by default.
func toggle(at *bool, flag string, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { *at = false },
		add:   func(f *pflag.FlagSet) { f.BoolVar(at, flag, *at, usage) },
		check: func() error { return nil },
	}
}

// settings returns the settings of all entries.
func settings(entries []Entry) []Setting {
	var all []Setting
	for _, e := range entries {
		all = append(all, e.Settings...)
	}
	return all
}
