package cgroup

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// The drivers: who makes cgroups.
const (
	Cgroupfs = "cgroupfs" // we do
	Systemd  = "systemd"  // systemd does, which runs the machine
)

// Options are what kubelet's flags say. Use Flags and Check.
type Options struct {
	Driver  string
	MaxPIDs int64 // of a pod; -1: any number
}

// Flags are kubelet's.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Driver, "cgroup-driver", Cgroupfs, "Driver for cgroups: cgroupfs, or systemd, which must be the init system of the machine. The containerd of the machine must use the same.")
	f.Int64Var(&o.MaxPIDs, "pod-max-pids", -1, "Maximum number of processes per pod. -1: no limit.")
}

// booted is there where systemd runs the machine: sd_booted(3).
const booted = "/run/systemd/system"

// Check says what is wrong with the flags' values.
func (o *Options) Check() error {
	switch o.Driver {
	case Cgroupfs:
		return nil
	case Systemd:
		if _, err := os.Lstat(booted); err != nil {
			return fmt.Errorf("--cgroup-driver: systemd does not run this machine (%s is not there); use cgroupfs", booted)
		}
		return nil
	}
	return fmt.Errorf("--cgroup-driver: %q is neither cgroupfs nor systemd", o.Driver)
}
