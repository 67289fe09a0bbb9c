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

// duration returns a setting that must be positive.
func duration(at *metav1.Duration, flag string, value time.Duration, usage string) Setting {
	return Setting{
		Flag:  flag,
		reset: func() { at.Duration = value },
		add:   func(f *pflag.FlagSet) { f.DurationVar(&at.Duration, flag, at.Duration, usage) },
		check: func() error {
			if at.Duration <= 0 {
				return fmt.Errorf("--%s must be positive, got %s", flag, at.Duration)
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

// settings returns those of all entries.
func (c *Config) settings(entries []Entry) []Setting {
	var all []Setting
	for _, e := range entries {
		if e.Settings != nil {
			all = append(all, e.Settings(c)...)
		}
	}
	return all
}
