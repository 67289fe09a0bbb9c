package controllers

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Each flag that a comment in controllers.go mentions exists.
func TestFlagsExist(t *testing.T) {
	t.Parallel()
	cfg := Default()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.Flags(flags)
	source, err := os.ReadFile("controllers.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(string(source), -1)
	if len(found) < 7 {
		t.Errorf("found only the flags %v", found)
	}
	for _, name := range found {
		if flags.Lookup(strings.TrimPrefix(name, "--")) == nil {
			t.Errorf("controllers.go mentions %s, which is not a flag", name)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"":                                "",
		"--concurrent-gc-syncs=0":         "--concurrent-gc-syncs must be at least 1, got 0",
		"--event-ttl=0s":                  "--event-ttl must be longer than 0s, got 0s",
		"--node-monitor-grace-period=10s": "--node-monitor-grace-period must be longer than 10s, got 10s",
	} {
		cfg := Default()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.Flags(flags)
		if err := flags.Parse(strings.Fields(arg)); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := cfg.Check(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: error %q, want %q", arg, got, want)
		}
	}
}
