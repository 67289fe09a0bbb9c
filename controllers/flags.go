package controllers

import (
	"github.com/spf13/pflag"
)

// Flags adds kube-controller-manager's flags; the values of c are their defaults.
func (c *Config) Flags(f *pflag.FlagSet) { c.flags(f, All(c)) }

func (c *Config) flags(f *pflag.FlagSet, entries []Entry) {
	f.StringSliceVar(&c.Controllers, "controllers", c.Controllers,
		"Controllers to run: * for all that are on by default, NAME to enable one, -NAME to disable one.")
	for _, setting := range settings(entries) {
		setting.add(f)
	}
}

// Check returns an error for invalid values.
func (c *Config) Check() error { return check(All(c)) }

func check(entries []Entry) error {
	for _, setting := range settings(entries) {
		if err := setting.check(); err != nil {
			return err
		}
	}
	return nil
}
