// Package security decides which of a pod's security settings a node can apply. It rejects settings that the node
// cannot apply, and never ignores them.
//
//   - Policy: the flags, with upstream's names.
//   - Host: the machine's features, AppArmor and SELinux; Refuse rejects pods, Check containers.
//   - Abilities: the runtime's features.
package security

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// Policy is the node's configuration. The zero value is upstream's default.
type Policy struct {
	// SeccompDefault applies the runtime's profile to containers that set no seccomp profile.
	SeccompDefault bool
	// UnsafeSysctls are sysctls, or prefixes ending in *, that pods may set in addition to the safe ones.
	UnsafeSysctls []string
}

// Flags adds kubelet's flags.
func (p *Policy) Flags(f *pflag.FlagSet) {
	f.BoolVar(&p.SeccompDefault, "seccomp-default", p.SeccompDefault,
		"Use RuntimeDefault as the seccomp profile of containers that set none.")
	f.StringSliceVar(&p.UnsafeSysctls, "allowed-unsafe-sysctls", p.UnsafeSysctls,
		"Comma-separated list of unsafe sysctls, or patterns ending in *, that pods may set: kernel.shm*, kernel.msg*, "+
			"kernel.sem, fs.mqueue.*, net.*.")
}

// Check returns an error for invalid values of the flags.
func (p *Policy) Check() error {
	var errs []error
	for _, s := range p.UnsafeSysctls {
		if _, err := parsePattern(s); err != nil {
			errs = append(errs, fmt.Errorf("--allowed-unsafe-sysctls: %w", err))
		}
	}
	return errors.Join(errs...)
}
