// Package security decides what of a pod's security settings a node can keep.
// Whatever it cannot is refused in words, never left out.
//
//   - Policy: what the flags say, with upstream's names.
//   - Host: what the machine has: AppArmor, SELinux.
//   - Node.Refuse: why a pod cannot run here.
//   - Check: why one container cannot be made as it asks.
package security

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Policy is the node's own part. The zero value is upstream's default.
type Policy struct {
	// SeccompDefault confines containers that say nothing of seccomp by the
	// runtime's profile.
	SeccompDefault bool
	// UnsafeSysctls are sysctls, or prefixes ending in *, that pods may set beside the
	// safe ones.
	UnsafeSysctls []string
}

// Flags are kubelet's.
func (p *Policy) Flags(f *pflag.FlagSet) {
	f.BoolVar(&p.SeccompDefault, "seccomp-default", p.SeccompDefault, "Use RuntimeDefault as the seccomp profile of containers that set none.")
	f.StringSliceVar(&p.UnsafeSysctls, "allowed-unsafe-sysctls", p.UnsafeSysctls, "Comma-separated list of unsafe sysctls, or patterns ending in *, that pods may set: kernel.shm*, kernel.msg*, kernel.sem, fs.mqueue.*, net.*.")
}

// Check says what is wrong with the flags' values.
func (p *Policy) Check() error {
	var errs []error
	for _, s := range p.UnsafeSysctls {
		if _, err := parsePattern(s); err != nil {
			errs = append(errs, fmt.Errorf("--allowed-unsafe-sysctls: %w", err))
		}
	}
	return errors.Join(errs...)
}
