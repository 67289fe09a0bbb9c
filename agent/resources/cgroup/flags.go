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
	Memory  MemoryPolicy
}

// Values of kubelet's memorySwap.swapBehavior and memoryReservationPolicy.
const (
	NoSwap            = "NoSwap"
	LimitedSwap       = "LimitedSwap"
	NoReservation     = "None"
	TieredReservation = "TieredReservation"
)

// MemoryPolicy is how pods share the machine's memory on cgroup v2. Its zero value is the default.
type MemoryPolicy struct{ Swap, Reservation string }

// Swaps reports whether Burstable containers may use swap.
func (p MemoryPolicy) Swaps() bool { return p.Swap == LimitedSwap }

// Protects reports whether the kernel keeps the memory that pods request.
func (p MemoryPolicy) Protects() bool { return p.Reservation == TieredReservation }

// Flags adds kubelet's flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Driver, "cgroup-driver", Cgroupfs,
		"Driver for cgroups: cgroupfs, or systemd, which must be the init system of the machine. "+
			"The containerd of the machine must use the same.")
	f.StringVar(&o.Memory.Swap, "memory-swap-behavior", NoSwap,
		"Swap that containers may use, with cgroup v2. NoSwap: none. LimitedSwap: containers of Burstable pods may use a "+
			"share of the machine's swap that is as large as their share of its memory.")
	f.StringVar(&o.Memory.Reservation, "memory-reservation-policy", NoReservation,
		"Memory that the kernel does not reclaim from pods, with cgroup v2. None: no memory. TieredReservation: what "+
			"Guaranteed pods request (memory.min), and, unless nothing else is left, what Burstable pods request (memory.low).")
	f.Int64Var(&o.MaxPIDs, "pod-max-pids", -1, "Maximum number of processes per pod. -1: no limit.")
}

// systemdRuntimeDir exists if systemd is the init system: sd_booted(3).
const systemdRuntimeDir = "/run/systemd/system"

// Check validates the flags.
func (o *Options) Check() error {
	if p := o.Memory; p.Swap != NoSwap && p.Swap != LimitedSwap {
		return fmt.Errorf("--memory-swap-behavior must be NoSwap or LimitedSwap, got %q", p.Swap)
	} else if p.Reservation != NoReservation && p.Reservation != TieredReservation {
		return fmt.Errorf("--memory-reservation-policy must be None or TieredReservation, got %q", p.Reservation)
	}
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
