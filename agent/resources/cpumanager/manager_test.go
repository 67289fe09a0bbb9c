package cpumanager_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/numa/numatest"
	"monopod/agent/resources/topology"
	"monopod/agent/resources/topology/topologytest"
)

// bench is a machine with a manager and its checkpoint.
type bench struct {
	*testing.T
	machine *numa.Machine
	file    string
	options map[string]string
	m       *cpumanager.Manager
	changes int
}

func newBench(t *testing.T, shape numatest.Shape, options ...string) *bench {
	b := &bench{T: t, machine: shape.Machine(t), file: filepath.Join(t.TempDir(), cpumanager.FileName),
		options: map[string]string{}}
	for _, o := range options {
		b.options[o] = "true"
	}
	b.start()
	return b
}

// start starts a manager with the checkpoint and one reserved CPU.
func (b *bench) start() {
	b.Helper()
	m, err := b.open()
	if err != nil {
		b.Fatal(err)
	}
	b.m = m
}

func (b *bench) open() (*cpumanager.Manager, error) {
	return cpumanager.New(cpumanager.Deps{
		Machine: b.machine, Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		File: checkpoint.File(b.file), Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Changed: func() { b.changes++ },
	}, cpumanager.Config{Policy: cpumanager.Static, Options: b.options})
}

// guaranteed returns a pod. Each name is a container with its CPU request: "i2" is an init container with 2 CPUs, "s1"
// a sidecar, "c1" a container.
func guaranteed(uid string, containers ...string) *corev1.Pod {
	asks := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text),
			corev1.ResourceMemory: resource.MustParse("1Mi")}
	}
	return topologytest.Guaranteed(uid, asks, containers...)
}

// admit allocates for all containers of the pod.
func (b *bench) admit(pod *corev1.Pod, nodes ...int) error {
	return topologytest.Admit(b, b.m, pod, topology.Hint{Nodes: topology.NewNodes(nodes...)})
}

// has checks the CPUs of the containers: "c1=1".
func (b *bench) has(pod *corev1.Pod, want ...string) {
	b.Helper()
	got := topologytest.Allotted(b, b.m, pod, func(a spec.Allotment) string { return a.CPUs })
	if !slices.Equal(got, want) {
		b.Errorf("pod %s has %v, want %v", pod.UID, got, want)
	}
}

func (b *bench) shares(want string) {
	b.Helper()
	if got := b.m.Shared().String(); got != want {
		b.Errorf("the shared CPUs are %s, want %s", got, want)
	}
}

var (
	laptop = numatest.Shape{Sockets: 1, Nodes: 1, Cores: 4, Threads: 2} // cores 0,4 1,5 2,6 3,7
	server = numatest.Shape{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2} // socket 0: 0-3,8-11; 1: 4-7,12-15
)

func TestExclusive(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop)
	b.shares("0-7")
	one, two := guaranteed("a", "c2"), guaranteed("b", "c1")
	for _, pod := range []*corev1.Pod{one, two, one} {
		if err := b.admit(pod); err != nil {
			t.Fatal(err)
		}
	}
	b.has(one, "c2=1,5")
	b.has(two, "c1=4") // the sibling of the reserved CPU
	b.shares("0,2-3,6-7")
	if b.changes != 2 {
		t.Errorf("%d changes reported, want 2", b.changes)
	}
	err := b.admit(guaranteed("c", "c5"))
	if want := "not enough cpus available to satisfy request: requested=5, available=4"; err == nil ||
		err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	b.m.Release("a")
	b.shares("0-3,5-7")
	if err := b.admit(guaranteed("c", "c5")); err != nil {
		t.Error(err)
	}
}

func TestContainersOfSharedPool(t *testing.T) {
	t.Parallel()
	burstable := guaranteed("a", "c1")
	burstable.Spec.Containers[0].Resources.Limits = nil
	whole := guaranteed("a", "c1")
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: whole.Spec.Containers[0].Resources.Requests}
	for name, pod := range map[string]*corev1.Pod{
		"500m": guaranteed("a", "c500m"), "1500m": guaranteed("a", "c1500m"),
		"burstable": burstable, "pod-level": whole,
	} {
		if n := cpumanager.ExclusiveCPUs(pod, &pod.Spec.Containers[0]); n != 0 {
			t.Errorf("%s: has %d exclusive CPUs", name, n)
		}
	}
}

func TestInitContainers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		containers []string
		want       []string
		shared     string
	}{
		{[]string{"i2", "c2"}, []string{"i2=1,5", "c2=1,5"}, "0,2-4,6-7"},
		{[]string{"i4", "c2"}, []string{"i4=1-2,5-6", "c2=1,5"}, "0,3-4,7"},
		{[]string{"i2", "i4", "c2", "c3"}, []string{"i2=1,5", "i4=1-2,5-6", "c2=1,5", "c3=2,4,6"}, "0,3,7"},
		{[]string{"s2", "i2", "c2"}, []string{"s2=1,5", "i2=2,6", "c2=2,6"}, "0,3-4,7"},
		{[]string{"i2", "s2", "c2"}, []string{"i2=1,5", "s2=1,5", "c2=2,6"}, "0,3-4,7"},
	} {
		b := newBench(t, laptop)
		pod := guaranteed("a", c.containers...)
		if err := b.admit(pod); err != nil {
			t.Errorf("%v: %v", c.containers, err)
		}
		b.has(pod, c.want...)
		b.shares(c.shared)
		b.m.Release("a")
		b.shares("0-7")
	}
}

func TestFullCores(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop, "full-pcpus-only")
	for _, c := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{guaranteed("a", "c1"), "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"},
		{guaranteed("b", "c8"), "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 6, " +
			"requested CPUs = 8, CPUs per core = 2"},
	} {
		err := b.admit(c.pod)
		if err == nil || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
		if r := topology.Refusal(nil); !errors.As(err, &r) || r.Reason() != "SMTAlignmentError" {
			t.Errorf("error %v has no reason", err)
		}
	}
	pod := guaranteed("c", "c6")
	if err := b.admit(pod); err != nil {
		t.Fatal(err)
	}
	b.has(pod, "c6=1-3,5-7")
	if err := b.admit(pod); err != nil {
		t.Error("second admission:", err)
	}
}

func TestStrict(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop, "strict-cpu-reservation")
	b.shares("1-7")
	if err := b.admit(guaranteed("a", "c7")); err != nil {
		t.Fatal(err)
	}
	b.shares("0") // the reserved CPU, because all others are exclusive
}

func TestNearHint(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	one, two := guaranteed("a", "c2"), guaranteed("b", "c8")
	if err := b.admit(one, 1); err != nil {
		t.Fatal(err)
	}
	b.has(one, "c2=4,12")
	if err := b.admit(two, 1); err != nil { // node 1 has too few free CPUs, so the rest is on node 0
		t.Fatal(err)
	}
	b.has(two, "c8=1,5-7,9,13-15")
}

func TestHints(t *testing.T) {
	t.Parallel()
	split := numatest.Shape{Sockets: 2, Nodes: 2, Cores: 2, Threads: 1} // nodes 0-1 2-3 | 4-5 6-7
	for _, c := range []struct {
		name    string
		options []string
		shape   numatest.Shape
		taken   []string
		pod     *corev1.Pod
		want    string // sets of nodes; * marks preferred ones
	}{
		{"shared pool", nil, server, nil, guaranteed("x", "c500m"), ""},
		{"either node", nil, server, nil, guaranteed("x", "c6"), "0* 1* 0,1"},
		{"only one node has enough", nil, server, nil, guaranteed("x", "c8"), "1* 0,1"},
		{"both nodes", nil, server, nil, guaranteed("x", "c10"), "0,1*"},
		{"fits only on an empty node", nil, server, []string{"c8"}, guaranteed("x", "c8"), ""},
		{"too much", nil, server, nil, guaranteed("x", "c16"), ""},
		{"sockets", []string{"align-by-socket"}, split, []string{"c1"}, guaranteed("x", "c2"),
			"1* 2* 3* 0,1* 0,2 1,2 0,3 1,3 2,3* 0,1,2 0,1,3 0,2,3 1,2,3 0,1,2,3"},
	} {
		b := newBench(t, c.shape, c.options...)
		if c.taken != nil {
			if err := b.admit(guaranteed("taken", c.taken...)); err != nil {
				t.Fatal(err)
			}
		}
		for scope, hints := range map[string]map[string][]topology.Hint{"container": b.m.Hints(c.pod,
			&c.pod.Spec.Containers[0]), "pod": b.m.PodHints(c.pod)} {
			if got := words(hints["cpu"]); got != c.want {
				t.Errorf("%s, %s: %s, want %s", c.name, scope, got, c.want)
			}
		}
	}
}

func words(hints []topology.Hint) string {
	slices.SortStableFunc(hints, func(a, b topology.Hint) int { return a.Nodes.Count() - b.Nodes.Count() })
	var out []string
	for _, h := range hints {
		text := h.Nodes.String()
		if h.Preferred {
			text += "*"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestHintsOfExistingAllocation checks that the hints of a container with exclusive CPUs match these CPUs.
func TestHintsOfExistingAllocation(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	pod := guaranteed("x", "c4")
	if err := b.admit(pod, 1); err != nil {
		t.Fatal(err)
	}
	for _, hints := range []map[string][]topology.Hint{b.m.Hints(pod, &pod.Spec.Containers[0]), b.m.PodHints(pod)} {
		if got := words(hints["cpu"]); got != "1* 0,1" {
			t.Errorf("hints %s, want 1* 0,1", got)
		}
	}
	more := guaranteed("x", "c6")
	more.Spec.Containers[0].Name = "c4"
	if hints := b.m.Hints(more, &more.Spec.Containers[0])["cpu"]; hints == nil || len(hints) > 0 {
		t.Errorf("hints for more CPUs than the container has: %v", hints)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop)
	pods := []*corev1.Pod{guaranteed("a", "c2"), guaranteed("b", "i3", "c1"), guaranteed("c", "c1")}
	for _, pod := range pods {
		if err := b.admit(pod); err != nil {
			t.Fatal(err)
		}
	}
	before := b.m.Shared().String()
	b.start()
	b.shares(before)
	b.has(pods[0], "c2=1,5")
	b.m.Retain(func(uid types.UID) bool { return uid != "a" })
	b.start()
	if got := b.m.Exclusive("a", "c2"); !got.IsEmpty() {
		t.Errorf("a deleted pod has the CPUs %s", got)
	}
	if b.m.Exclusive("b", "c1").IsEmpty() || b.m.Lost() != nil {
		t.Errorf("an existing pod has no CPUs; lost checkpoint: %v", b.m.Lost())
	}
	text, err := os.ReadFile(b.file)
	if err != nil || !strings.HasPrefix(string(text), `{"policyName":"static","defaultCpuSet":"`) ||
		!strings.Contains(string(text), `"entries":{"b":{"c1":"`) {
		t.Errorf("error %v, file %s", err, text)
	}
}

// TestDamaged checks that the manager starts without a damaged checkpoint, and reports the damage.
func TestDamaged(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop)
	if err := b.admit(guaranteed("a", "c2")); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"truncated": good[:len(good)/2], "empty": nil,
		"changed": []byte(strings.Replace(string(good), "1,5", "1,6", 1))}
	maps.Copy(files, map[string][]byte{
		"reserved":       b.written("static", map[string]string{"a": "0"}),
		"no such CPU":    b.written("static", map[string]string{"a": "9"}),
		"invalid CPUs":   b.written("static", map[string]string{"a": "x"}),
		"twice":          b.written("static", map[string]string{"a": "1", "b": "1"}),
		"another policy": b.written("none", nil),
	})
	for name, text := range files {
		if err := os.WriteFile(b.file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.shares("0-7")
		if lost := b.m.Lost(); lost == nil || !strings.Contains(lost.Error(), "no action is needed") {
			t.Errorf("%s: lost: %v", name, lost)
		}
		if aside, err := os.ReadFile(b.file + ".damaged"); err != nil || string(aside) != string(text) {
			t.Errorf("%s: the .damaged file contains %q, error %v", name, aside, err)
		}
		if b.start(); b.m.Lost() != nil {
			t.Errorf("%s: the next start reports damage, too: %v", name, b.m.Lost())
		}
	}
}

// TestRecovered checks that, without the checkpoint, containers keep the CPUs that they were created with, as far as
// possible.
func TestRecovered(t *testing.T) {
	t.Parallel()
	b := newBench(t, laptop)
	one, two := guaranteed("a", "i3", "c2"), guaranteed("b", "c1")
	for _, pod := range []*corev1.Pod{one, two} {
		if err := b.admit(pod); err != nil {
			t.Fatal(err)
		}
	}
	first, second, shared := topologytest.Created(t, b.m, one), topologytest.Created(t, b.m, two), b.m.Shared().String()
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	b.start()
	odd := topology.Container{Pod: "odd", Container: "c",
		Annotations: map[string]string{"io.monopod.container.cpus": "0-99"}}
	b.m.Recover(slices.Concat(second, first, topologytest.As("thief", first), []topology.Container{odd}))
	b.start() // the checkpoint contains the recovered allocations
	b.shares(shared)
	if again := topologytest.Created(t, b.m, one); !cmp.Equal(again, first) {
		t.Error(cmp.Diff(first, again))
	}
	if got := b.m.Exclusive("thief", "c2"); !got.IsEmpty() {
		t.Errorf("a second pod recovered the same CPUs: %s", got)
	}
}

// written returns a checkpoint with a valid checksum.
func (b *bench) written(policy string, pods map[string]string) []byte {
	b.Helper()
	entries := map[string]map[string]string{}
	for uid, cpus := range pods {
		entries[uid] = map[string]string{"c": cpus}
	}
	f := checkpoint.File(filepath.Join(b.TempDir(), "f"))
	if err := f.Save(map[string]any{"policyName": policy, "entries": entries}); err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(string(f))
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cpus, amount string
		want         string // part of the error; empty: none
		reserved     string
	}{
		{"", "1500m", "", "0,4"},
		{"3,7", "0", "", "3,7"},
		{"3,7", "1", "", "3,7"},
		{"", "0", "requires that cpu of --kube-reserved and --system-reserved is greater than zero", ""},
		{"8", "0", "--reserved-cpus: 8: this machine has the CPUs 0-7", ""},
		{"", "9", "not enough cpus available to satisfy request: requested=9, available=8", ""},
	} {
		cpus, err := cpuset.Parse(c.cpus)
		if err != nil {
			t.Fatal(err)
		}
		m, err := cpumanager.New(cpumanager.Deps{
			Machine: laptop.Machine(t), ReservedCPUs: cpus,
			Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(c.amount)},
			File:     checkpoint.File(filepath.Join(t.TempDir(), "f")), Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
			Changed: func() {},
		}, cpumanager.Config{Policy: cpumanager.Static})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: error %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		default:
			if got := laptop.Machine(t).All().Difference(m.Allocatable()).String(); got != c.reserved {
				t.Errorf("%+v: reserved %s", c, got)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy, options, near string
		want                  string // part of the error; empty: none
	}{
		{"none", "", "none", ""},
		{"static", "full-pcpus-only distribute-cpus-across-numa strict-cpu-reservation", "none", ""},
		{"static", "align-by-socket", "restricted", ""},
		{"Static", "", "none", `--cpu-manager-policy must be none or static, got "Static"`},
		{"none", "full-pcpus-only", "none", "policy none has no options"},
		{"static", "full", "none", `unknown option "full"; known: align-by-socket, distribute-cpus-across-cores,`},
		{"static", "full-pcpus-only distribute-cpus-across-cores", "none",
			"full-pcpus-only and distribute-cpus-across-cores can not be used at the same time"},
		{"static", "align-by-socket", "single-numa-node", "align-by-socket and --topology-manager-policy=single-numa-node"},
	} {
		cfg := cpumanager.Config{Policy: c.policy, Options: map[string]string{}, Period: 1}
		for _, o := range strings.Fields(c.options) {
			cfg.Options[o] = "true"
		}
		err := cfg.Check(c.near)
		if c.want == "" && err != nil || c.want != "" && !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
