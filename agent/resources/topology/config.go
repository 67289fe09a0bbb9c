package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"monopod/agent/resources/numa"
)

// The policies: how to handle a pod whose resources cannot be aligned.
const (
	None       = "none"             // resources are not aligned
	BestEffort = "best-effort"      // the pod is admitted anyway
	Restricted = "restricted"       // the pod is rejected if its resources could be aligned better on an empty machine
	SingleNode = "single-numa-node" // the pod is rejected if its resources are not on one node
)

// The scopes of alignment.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

const (
	optionClosest = "prefer-closest-numa-nodes"
	optionNodes   = "max-allowable-numa-nodes"

	// maxNodes is the maximum number of NUMA nodes, because all subsets of nodes are tried (upstream: 8).
	maxNodes = 8
)

// Config contains the values of kubelet's flags for the topology manager. The zero value is policy none.
type Config struct {
	Policy, Scope string
	Options       map[string]string
}

// Flags adds kubelet's flags.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Policy, "topology-manager-policy", None,
		"Topology manager policy, for the alignment of exclusive CPUs, memory and devices: "+
			"none, best-effort, restricted or single-numa-node.")
	f.StringVar(&c.Scope, "topology-manager-scope", ScopeContainer, "Scope to which the policy applies: container or pod.")
	f.StringToStringVar(&c.Options, "topology-manager-policy-options", nil, "Options of the topology manager policy: "+
		optionClosest+"=true prefers NUMA nodes that are close to each other, "+optionNodes+
		"=N allows machines with up to N NUMA nodes (default 8).")
}

// Check validates the flags.
func (c *Config) Check() error {
	var errs []error
	if !slices.Contains([]string{None, BestEffort, Restricted, SingleNode}, c.Policy) {
		errs = append(errs,
			fmt.Errorf("--topology-manager-policy: unknown policy %q; known: none, best-effort, restricted, single-numa-node",
				c.Policy))
	}
	if c.Scope != ScopeContainer && c.Scope != ScopePod {
		errs = append(errs, fmt.Errorf("--topology-manager-scope: %q is neither container nor pod", c.Scope))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Options)) {
		var err error
		switch value := c.Options[name]; name {
		case optionClosest:
			if _, err = strconv.ParseBool(value); err != nil {
				err = fmt.Errorf("%s: %q is neither true nor false", name, value)
			}
		case optionNodes:
			if n, e := strconv.Atoi(value); e != nil || n < maxNodes || n > 64 {
				err = fmt.Errorf("%s: %q is not a number from %d to 64", name, value, maxNodes)
			}
		default:
			err = fmt.Errorf("unknown option %q; known: %s", name, strings.Join([]string{optionNodes, optionClosest}, ", "))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--topology-manager-policy-options: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Off reports whether the policy is none.
func (c *Config) Off() bool { return c.Policy == None || c.Policy == "" }

func (c *Config) closest() bool {
	on, _ := strconv.ParseBool(c.Options[optionClosest])
	return on && c.Policy != SingleNode
}

// checkMachine returns an error if the machine has too many NUMA nodes for the policy.
func (c *Config) checkMachine(m *numa.Machine) error {
	limit := maxNodes
	if n, err := strconv.Atoi(c.Options[optionNodes]); err == nil {
		limit = n
	}
	highest := m.Nodes[len(m.Nodes)-1].ID
	if len(m.Nodes) > limit || highest >= 64 {
		return fmt.Errorf(
			"--topology-manager-policy: %s: unsupported on machines with more than %d NUMA nodes, this one has %d", c.Policy,
			limit, len(m.Nodes))
	}
	return nil
}
