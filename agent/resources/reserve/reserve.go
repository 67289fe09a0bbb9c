// Package reserve computes node allocatable: the capacity minus the reservations for
// Kubernetes' own and system processes, and minus the hard eviction thresholds.
package reserve

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// PID is the resource name of process IDs in the reservations. A node has no capacity with this name.
const PID = corev1.ResourceName("pid")

// Values of --enforce-node-allocatable.
const (
	EnforcePods               = "pods"
	EnforceSystem             = "system-reserved"
	EnforceSystemCompressible = "system-reserved-compressible"
	EnforceKube               = "kube-reserved"
	EnforceKubeCompressible   = "kube-reserved-compressible"
	EnforceNone               = "none"
)

// Config contains the reservations and the cgroups that enforce them. The zero value reserves nothing. Use Flags and
// Check.
type Config struct {
	// KubeReserved is for the agent and the container runtime, SystemReserved for all
	// other processes that are not pods: cpu, memory, ephemeral-storage and pid.
	KubeReserved, SystemReserved corev1.ResourceList
	// ReservedCPUs are never allocated exclusively. They replace cpu in both reservations.
	ReservedCPUs cpuset.CPUSet

	EnforceNodeAllocatable []string // Enforce…; default of Flags: pods
	// The cgroups whose limits EnforceKube and EnforceSystem set.
	KubeReservedCgroup, SystemReservedCgroup string
}

// Flags adds kubelet's flags.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.Var(&amountsFlag{&c.KubeReserved}, "kube-reserved",
		"Resources reserved for monopod and the container runtime, for example "+
			"cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000.")
	f.Var(&amountsFlag{&c.SystemReserved}, "system-reserved",
		"Resources reserved for all other processes that are not pods, for example "+
			"cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000.")
	f.Var(&cpusFlag{&c.ReservedCPUs}, "reserved-cpus",
		"CPUs reserved for the system and monopod, for example 0-1,4. Replaces cpu in --kube-reserved and --system-reserved.")
	f.StringSliceVar(&c.EnforceNodeAllocatable, "enforce-node-allocatable", []string{EnforcePods},
		"Comma-separated list of the limits to enforce by cgroups: "+strings.Join(enforceable(), ", ")+
			"; none or \"\" for nothing.")
	f.StringVar(&c.KubeReservedCgroup, "kube-reserved-cgroup", "",
		"Absolute name of the cgroup that --enforce-node-allocatable=kube-reserved limits, for example /podruntime.slice.")
	f.StringVar(&c.SystemReservedCgroup, "system-reserved-cgroup", "",
		"Absolute name of the cgroup that --enforce-node-allocatable=system-reserved limits, for example /system.slice.")
}

func enforceable() []string {
	return []string{EnforcePods, EnforceSystem, EnforceSystemCompressible, EnforceKube, EnforceKubeCompressible}
}

// Check validates the flags.
func (c *Config) Check() error {
	var errs []error
	for i, name := range c.EnforceNodeAllocatable {
		switch {
		case name == EnforceNone && len(c.EnforceNodeAllocatable) > 1:
			errs = append(errs, errors.New("--enforce-node-allocatable: none cannot be combined with other values"))
		case name == EnforceNone || name == "":
		case !slices.Contains(enforceable(), name):
			errs = append(errs,
				fmt.Errorf("--enforce-node-allocatable: unknown value %q; known: %s, none", name,
					strings.Join(enforceable(), ", ")))
		case slices.Contains(c.EnforceNodeAllocatable[:i], name):
			errs = append(errs, fmt.Errorf("--enforce-node-allocatable: %s is given twice", name))
		}
	}
	errs = append(errs, c.needs(c.KubeReservedCgroup, "kube-reserved-cgroup", EnforceKube, EnforceKubeCompressible),
		c.needs(c.SystemReservedCgroup, "system-reserved-cgroup", EnforceSystem, EnforceSystemCompressible))
	if !c.ReservedCPUs.IsEmpty() && c.KubeReservedCgroup+c.SystemReservedCgroup != "" {
		errs = append(errs,
			errors.New("--reserved-cpus: cannot be used with --kube-reserved-cgroup or --system-reserved-cgroup"))
	}
	return errors.Join(errs...)
}

// needs checks that an enforced reservation has a cgroup, and is enforced either as a whole or compressible.
func (c *Config) needs(cgroup, flag, whole, compressible string) error {
	a, b := c.Enforces(whole), c.Enforces(compressible)
	switch {
	case a && b:
		return fmt.Errorf("--enforce-node-allocatable: %s and %s are mutually exclusive", whole, compressible)
	case a && cgroup == "":
		return fmt.Errorf("--%s is required by --enforce-node-allocatable=%s", flag, whole)
	case b && cgroup == "":
		return fmt.Errorf("--%s is required by --enforce-node-allocatable=%s", flag, compressible)
	}
	return nil
}

// Enforces reports whether --enforce-node-allocatable contains what.
func (c *Config) Enforces(what string) bool { return slices.Contains(c.EnforceNodeAllocatable, what) }

// Reserved returns the sum of both reservations.
func (c *Config) Reserved() corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{c.Kube(), c.System()} {
		for name, q := range list {
			have := sum[name]
			have.Add(q)
			sum[name] = have
		}
	}
	return sum
}

// Kube returns KubeReserved, without cpu if ReservedCPUs replaces it.
func (c *Config) Kube() corev1.ResourceList {
	list := c.KubeReserved.DeepCopy()
	if !c.ReservedCPUs.IsEmpty() {
		delete(list, corev1.ResourceCPU)
	}
	return list
}

// System returns SystemReserved. If there are ReservedCPUs, their number is its cpu.
func (c *Config) System() corev1.ResourceList {
	list := c.SystemReserved.DeepCopy()
	if n := c.ReservedCPUs.Size(); n > 0 {
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
	return list
}

// Allocatable returns capacity minus the reservations and minus eviction, the hard eviction thresholds of memory and
// ephemeral-storage. The memory of huge pages is subtracted, too. No amount is negative.
func (c *Config) Allocatable(capacity, eviction corev1.ResourceList) corev1.ResourceList {
	out := capacity.DeepCopy()
	for _, list := range []corev1.ResourceList{c.Reserved(), eviction, hugePages(capacity)} {
		for name, q := range list {
			if have, ok := out[name]; ok {
				have.Sub(q)
				out[name] = have
			}
		}
	}
	for name, q := range out {
		if q.Sign() < 0 {
			out[name] = *resource.NewQuantity(0, q.Format)
		}
	}
	return out
}

// hugePages returns the memory of huge pages.
func hugePages(capacity corev1.ResourceList) corev1.ResourceList {
	var sum resource.Quantity
	for name, q := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			sum.Add(q)
		}
	}
	return corev1.ResourceList{corev1.ResourceMemory: sum}
}

// Fits returns an error for each reservation that exceeds the node's capacity.
func (c *Config) Fits(capacity corev1.ResourceList) error {
	var errs []error
	for name, q := range c.Reserved() {
		if have, ok := capacity[name]; ok && q.Cmp(have) > 0 {
			errs = append(errs,
				fmt.Errorf("--kube-reserved and --system-reserved: %s of %s are reserved, but the node has %s", q.String(), name,
					have.String()))
		}
	}
	return errors.Join(errs...)
}
