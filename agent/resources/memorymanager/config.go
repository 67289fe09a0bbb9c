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
	None   = "None"   // the kernel finds memory for all containers where it likes
	Static = "Static" // guaranteed pods' containers have theirs on certain NUMA nodes
)

// Config is what kubelet's flags of the memory manager say. The zero value is
// policy None.
type Config struct {
	Policy string
	// Reserved is what no container gets of each NUMA node, by its id; together it is
	// what the node reserves.
	Reserved map[int]corev1.ResourceList
}

// Flags are kubelet's.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.Policy, "memory-manager-policy", None, "Memory manager policy: None, or Static, which allocates memory of Guaranteed pods from as few NUMA nodes as possible. Static requires --reserved-memory.")
	f.Var(&reserved{&c.Reserved}, "reserved-memory", "Memory of each NUMA node that is reserved, for example 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=2Gi. The sum must equal what the node reserves.")
}

// Off reports whether nobody's memory is looked after.
func (c *Config) Off() bool { return c.Policy != Static }

// Check says what is wrong with the flags' values.
func (c *Config) Check() error {
	switch {
	case c.Policy != None && c.Policy != Static:
		return fmt.Errorf("--memory-manager-policy: %q is neither None nor Static", c.Policy)
	case c.Policy == None && len(c.Reserved) > 0:
		return errors.New("--reserved-memory: policy None reserves nothing: --memory-manager-policy=Static does")
	case c.Policy == Static && len(c.Reserved) == 0:
		return errors.New("--memory-manager-policy: Static requires --reserved-memory")
	}
	return nil
}

// agrees checks the reservations against the machine and what the node reserves as
// a whole.
func (c *Config) agrees(m *numa.Machine, whole corev1.ResourceList) error {
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
			return fmt.Errorf("--reserved-memory: the total amount %q of type %q is not equal to the value %q determined by Node Allocatable feature: --kube-reserved, --system-reserved and --eviction-hard", is.String(), name, should.String())
		}
	}
	return nil
}

// reserved is a flag, given once or for each node.
type reserved struct{ to *map[int]corev1.ResourceList }

var _ pflag.Value = (*reserved)(nil)

// String implements pflag.Value.
func (r *reserved) String() string {
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
func (r *reserved) Type() string { return "list" }

// Set implements pflag.Value.
func (r *reserved) Set(text string) error {
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
			return fmt.Errorf("node %d stands there twice", node)
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
			return nil, fmt.Errorf("%s: %q is no amount above 0 such as 1Gi", name, value)
		}
		if _, twice := out[corev1.ResourceName(name)]; twice {
			return nil, fmt.Errorf("%s stands there twice", name)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

// pinned reports whether the resource lies on NUMA nodes.
func pinned(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
