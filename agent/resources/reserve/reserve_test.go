package reserve_test

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/resources/reserve"
)

// parse reads flags and checks them.
func parse(args ...string) (reserve.Config, error) {
	var c reserve.Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	c.Flags(f)
	if err := f.Parse(args); err != nil {
		return c, err
	}
	return c, c.Check()
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want string // part of the error; empty: none
	}{
		{"", ""},
		{"--kube-reserved=cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000 --reserved-cpus=0-1,4", ""},
		{"--enforce-node-allocatable=", ""},
		{"--enforce-node-allocatable=none", ""},
		{"--enforce-node-allocatable=pods,kube-reserved --kube-reserved-cgroup=/a", ""},
		{"--enforce-node-allocatable=pods,system-reserved-compressible --system-reserved-cgroup=/a", ""},
		{"--kube-reserved=cpu", `"cpu" is not of the form resource=amount`},
		{"--kube-reserved=cpu=x", `cpu: "x" is not an amount such as 500Mi`},
		{"--kube-reserved=cpu=-1", `cpu: "-1" is negative`},
		{"--kube-reserved=cpu=1,cpu=2", `cpu is given twice`},
		{"--system-reserved=pods=1", `cannot reserve "pods"; known: cpu, memory, ephemeral-storage, pid`},
		{"--reserved-cpus=a", `"a" is not a list of CPUs such as 0-1,4`},
		{"--reserved-cpus=3-1", `"3-1" is not a list of CPUs such as 0-1,4`},
		{"--enforce-node-allocatable=pod", `unknown value "pod"; known: pods, `},
		{"--enforce-node-allocatable=pods,none", `none cannot be combined with other values`},
		{"--enforce-node-allocatable=pods,pods", `pods is given twice`},
		{"--enforce-node-allocatable=kube-reserved",
			`--kube-reserved-cgroup is required by --enforce-node-allocatable=kube-reserved`},
		{"--enforce-node-allocatable=system-reserved-compressible", `--system-reserved-cgroup is required by`},
		{"--enforce-node-allocatable=kube-reserved,kube-reserved-compressible --kube-reserved-cgroup=/a",
			`mutually exclusive`},
		{"--reserved-cpus=0 --kube-reserved-cgroup=/a", `--reserved-cpus: cannot be used with --kube-reserved-cgroup`},
	} {
		_, err := parse(strings.Fields(c.args)...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}

func list(text ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(text); i += 2 {
		out[corev1.ResourceName(text[i])] = resource.MustParse(text[i+1])
	}
	return out
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	capacity := list("cpu", "4", "memory", "8Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi")
	for _, c := range []struct {
		args     string
		eviction corev1.ResourceList
		want     corev1.ResourceList
	}{
		{"", nil, list("cpu", "4", "memory", "7Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi")},
		{"--kube-reserved=cpu=500m,memory=1Gi,pid=1000 --system-reserved=cpu=100m,memory=512Mi,ephemeral-storage=10Gi",
			list("memory", "100Mi", "ephemeral-storage", "10Gi"),
			list("cpu", "3400m", "memory", "5532Mi", "ephemeral-storage", "80Gi", "pods", "110", "hugepages-2Mi", "1Gi")},
		{"--kube-reserved=cpu=500m --system-reserved=cpu=3 --reserved-cpus=1", nil,
			list("cpu", "3", "memory", "7Gi", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi")},
		{"--kube-reserved=memory=8Gi", list("memory", "1Gi"),
			list("cpu", "4", "memory", "0", "ephemeral-storage", "100Gi", "pods", "110", "hugepages-2Mi", "1Gi")},
	} {
		cfg, err := parse(strings.Fields(c.args)...)
		if err != nil {
			t.Fatal(err)
		}
		got := cfg.Allocatable(capacity, c.eviction)
		if len(got) != len(c.want) {
			t.Errorf("%q: %v", c.args, got)
		}
		for name, want := range c.want {
			if q := got[name]; q.Cmp(want) != 0 {
				t.Errorf("%q: %s is %s, want %s", c.args, name, q.String(), want.String())
			}
		}
	}
}

func TestFits(t *testing.T) {
	t.Parallel()
	cfg, err := parse("--kube-reserved=cpu=3,pid=1000", "--system-reserved=cpu=2")
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Fits(list("cpu", "5")); err != nil {
		t.Error(err)
	}
	if err := cfg.Fits(list("cpu", "4")); err == nil ||
		!strings.Contains(err.Error(), "5 of cpu are reserved, but the node has 4") {
		t.Errorf("error %v", err)
	}
}
