package reserve

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// amountsFlag is a flag value: resource=amount pairs, separated by commas.
type amountsFlag struct{ to *corev1.ResourceList }

var _ pflag.Value = (*amountsFlag)(nil)

// String implements pflag.Value.
func (a *amountsFlag) String() string {
	if a.to == nil {
		return ""
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(*a.to)) {
		q := (*a.to)[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (a *amountsFlag) Type() string { return "list" }

// Set implements pflag.Value.
func (a *amountsFlag) Set(text string) error {
	out := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form resource=amount", part)
		}
		if err := reservable(corev1.ResourceName(name)); err != nil {
			return err
		}
		q, err := resource.ParseQuantity(value)
		if err != nil {
			return fmt.Errorf("%s: %q is not an amount such as 500Mi", name, value)
		}
		if q.Sign() < 0 {
			return fmt.Errorf("%s: %q is negative", name, value)
		}
		if _, twice := out[corev1.ResourceName(name)]; twice {
			return fmt.Errorf("%s is given twice", name)
		}
		out[corev1.ResourceName(name)] = q
	}
	*a.to = out
	return nil
}

// reservable returns an error if the resource cannot be reserved. Upstream allows the same four resources.
func reservable(name corev1.ResourceName) error {
	known := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, PID}
	if slices.Contains(known, name) {
		return nil
	}
	return fmt.Errorf("cannot reserve %q; known: %s, %s, %s, %s", name, known[0], known[1], known[2], known[3])
}

// cpusFlag is a flag value: a list of CPUs such as 0-1,4.
type cpusFlag struct{ to *cpuset.CPUSet }

var _ pflag.Value = (*cpusFlag)(nil)

// String implements pflag.Value.
func (p *cpusFlag) String() string {
	if p.to == nil {
		return ""
	}
	return p.to.String()
}

// Type implements pflag.Value.
func (p *cpusFlag) Type() string { return "cpus" }

// Set implements pflag.Value.
func (p *cpusFlag) Set(text string) error {
	set, err := cpuset.Parse(strings.TrimSpace(text))
	if err != nil {
		return fmt.Errorf("%q is not a list of CPUs such as 0-1,4", text)
	}
	*p.to = set
	return nil
}
