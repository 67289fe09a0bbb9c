package cgroup_test

import (
	"os"
	"testing"

	"github.com/spf13/pflag"

	"monopod/agent/resources/cgroup"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	systemd := ""
	if _, err := os.Lstat("/run/systemd/system"); err != nil {
		systemd = "--cgroup-driver: systemd is not the init system of this machine (/run/systemd/system does not exist); " +
			"use cgroupfs"
	}
	for flag, want := range map[string]string{
		"--pod-max-pids=7":                              "",
		"--cgroup-driver=cgroupfs":                      "",
		"--memory-swap-behavior=LimitedSwap":            "",
		"--memory-swap-behavior=UnlimitedSwap":          `--memory-swap-behavior must be NoSwap or LimitedSwap, got "UnlimitedSwap"`,
		"--memory-reservation-policy=TieredReservation": "",
		"--memory-reservation-policy=all":               `--memory-reservation-policy must be None or TieredReservation, got "all"`,
		"--cgroup-driver=systemd":                       systemd,
		"--cgroup-driver=docker":                        `--cgroup-driver must be cgroupfs or systemd, got "docker"`,
	} {
		var o cgroup.Options
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Flags(f)
		if err := f.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		if got := errorText(o.Check()); got != want {
			t.Errorf("%s: %s", flag, got)
		}
	}
}
