package memorymanager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/resources/numa"
)

// The policies.
const (
	None   = "None"   // no memory is pinned
	Static = "Static" // the memory of Guaranteed pods is pinned to NUMA nodes
)

// Config contains the values of kubelet's flags for the memory manager. The zero value is policy None.
type Config struct {
	Policy string
	// Reserved is the reserved memory of each NUMA node, by its ID; the sum is the
	// node's reservation.
	Reserved map[int]corev1.ResourceList
}

// Flags adds kubelet's flags.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Policy, "memory-manager-policy", None,
		"Memory manager policy: None, or Static, which allocates memory of Guaranteed pods from as few NUMA nodes as "+
			"possible. Static requires --reserved-memory.")
	f.Var(&reservedMemoryFlag{&c.Reserved}, "reserved-memory",
		"Memory of each NUMA node that is reserved, for example 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=2Gi. "+
			"The sum must equal the node's reservations.")
}

// Off reports whether the policy is None.
func (c *Config) Off() bool { return c.Policy != Static }

// Check validates the flags.
func (c *Config) Check() error {
	switch {
	case c.Policy != None && c.Policy != Static:
		return fmt.Errorf("--memory-manager-policy: %q is neither None nor Static", c.Policy)
	case c.Policy == None && len(c.Reserved) > 0:
		return errors.New("--reserved-memory: policy None reserves nothing; set --memory-manager-policy=Static")
	case c.Policy == Static && len(c.Reserved) == 0:
		return errors.New("--memory-manager-policy: Static requires --reserved-memory")
	}
	return nil
}

// checkMachine checks the reservations against the machine and the node's total reservation.
func (c *Config) checkMachine(m *numa.Machine, whole corev1.ResourceList) error {
	sum := corev1.ResourceList{corev1.ResourceMemory: resource.Quantity{}}
	for _, id := range slices.Sorted(maps.Keys(c.Reserved)) {
		if !slices.ContainsFunc(m.Nodes, func(n numa.Node) bool { return n.ID == id }) {
			return fmt.Errorf("--reserved-memory: this machine has no NUMA node %d", id)
		}
		for name, q := range c.Reserved[id] {
			have := sum[name]
			have.Add(q)
			sum[name] = have
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		is, should := sum[name], whole[name]
		if is.Cmp(should) != 0 {
			return fmt.Errorf("--reserved-memory: the total amount %q of type %q is not equal to the value %q determined by "+
				"Node Allocatable feature: --kube-reserved, --system-reserved and --eviction-hard",
				is.String(), name, should.String())
		}
	}
	return nil
}

// reservedMemoryFlag is the value of --reserved-memory, which may be given once for all nodes or once for each.
type reservedMemoryFlag struct{ to *map[int]corev1.ResourceList }

var _ pflag.Value = (*reservedMemoryFlag)(nil)

// String implements pflag.Value.
func (r *reservedMemoryFlag) String() string {
	if r.to == nil {
		return ""
	}
	var nodes []string
	for _, id := range slices.Sorted(maps.Keys(*r.to)) {
		var amounts []string
		for _, name := range slices.Sorted(maps.Keys((*r.to)[id])) {
			q := (*r.to)[id][name]
			amounts = append(amounts, string(name)+"="+q.String())
		}
		nodes = append(nodes, strconv.Itoa(id)+":"+strings.Join(amounts, ","))
	}
	return strings.Join(nodes, ";")
}

// Type implements pflag.Value.
func (r *reservedMemoryFlag) Type() string { return "list" }

// Set implements pflag.Value.
func (r *reservedMemoryFlag) Set(text string) error {
	if *r.to == nil {
		*r.to = map[int]corev1.ResourceList{}
	}
	for part := range strings.SplitSeq(text, ";") {
		id, list, ok := strings.Cut(part, ":")
		node, err := strconv.Atoi(id)
		if !ok || err != nil || node < 0 {
			return fmt.Errorf("%q is not of the form 0:memory=1Gi", part)
		}
		if (*r.to)[node] != nil {
			return fmt.Errorf("node %d is given twice", node)
		}
		if (*r.to)[node], err = amounts(list); err != nil {
			return err
		}
	}
	return nil
}

func amounts(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if !pinned(corev1.ResourceName(name)) {
			return nil, fmt.Errorf("%q is neither memory nor hugepages-<size>", name)
		}
		q, err := resource.ParseQuantity(value)
		if err != nil || q.Sign() <= 0 {
			return nil, fmt.Errorf("%s: %q is not a positive amount such as 1Gi", name, value)
		}
		if _, twice := out[corev1.ResourceName(name)]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// pinned reports whether the resource is allocated from NUMA nodes.
func pinned(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
