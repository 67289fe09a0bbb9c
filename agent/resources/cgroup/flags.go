package cgroup

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// The drivers.
const (
	Cgroupfs = "cgroupfs" // Monopod creates cgroups
	Systemd  = "systemd"  // systemd, the init system, creates cgroups
)

// Options are the values of kubelet's flags. Use Flags and Check.
type Options struct {
	Driver  string
	MaxPIDs int64 // of a pod; -1: any number
}

// Flags adds kubelet's flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Driver, "cgroup-driver", Cgroupfs,
		"Driver for cgroups: cgroupfs, or systemd, which must be the init system of the machine. "+
			"The containerd of the machine must use the same.")
	f.Int64Var(&o.MaxPIDs, "pod-max-pids", -1, "Maximum number of processes per pod. -1: no limit.")
}

// systemdRuntimeDir exists if systemd is the init system: sd_booted(3).
const systemdRuntimeDir = "/run/systemd/system"

// Check validates the flags.
func (o *Options) Check() error {
	switch o.Driver {
	case Cgroupfs:
		return nil
	case Systemd:
		if _, err := os.Lstat(systemdRuntimeDir); err != nil {
			return fmt.Errorf(
				"--cgroup-driver: systemd is not the init system of this machine (%s does not exist); use cgroupfs",
				systemdRuntimeDir)
		}
		return nil
	}
	return fmt.Errorf("--cgroup-driver must be cgroupfs or systemd, got %q", o.Driver)
}
