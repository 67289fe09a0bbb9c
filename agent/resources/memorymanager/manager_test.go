package memorymanager_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host/checkpoint"
	"monopod/agent/podapi/spec"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/numa"
	"monopod/agent/resources/numa/numatest"
	"monopod/agent/resources/topology"
	"monopod/agent/resources/topology/topologytest"
)

// bench is a machine with two nodes. Each has 4 GiB and 16 huge pages of 2 MiB; 1 GiB of node 0 is reserved.
type bench struct {
	*testing.T
	machine *numa.Machine
	file    string
	m       *memorymanager.Manager
}

func newBench(t *testing.T) *bench {
	shape := numatest.Shape{Sockets: 2, Nodes: 1, Cores: 1, Threads: 1, Memory: 4<<30 + 32<<20, HugePages: 16}
	b := &bench{T: t, machine: shape.Machine(t), file: filepath.Join(t.TempDir(), memorymanager.FileName)}
	b.start()
	return b
}

// newFull returns a bench with two pods, one on each node.
func newFull(t *testing.T) (b *bench, one, two *corev1.Pod) {
	b = newBench(t)
	one, two = guaranteed("a", "i3Gi", "c2Gi"), guaranteed("b", "c1Gi+4Mi")
	for _, pod := range []*corev1.Pod{one, two} {
		if err := b.admit(pod, topology.Hint{}); err != nil {
			t.Fatal(err)
		}
	}
	return b, one, two
}

func (b *bench) start() {
	b.Helper()
	m, err := b.open("0:memory=1Gi", "1Gi")
	if err != nil {
		b.Fatal(err)
	}
	b.m = m
}

func (b *bench) open(reserved, whole string) (*memorymanager.Manager, error) {
	cfg, err := flags("--memory-manager-policy=Static", "--reserved-memory="+reserved)
	if err != nil {
		return nil, err
	}
	return memorymanager.New(memorymanager.Deps{
		Machine: b.machine, Reserved: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(whole)},
		File: checkpoint.File(b.file), Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
	}, cfg)
}

func flags(args ...string) (memorymanager.Config, error) {
	var c memorymanager.Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	c.Flags(f)
	if err := f.Parse(args); err != nil {
		return c, err
	}
	return c, c.Check()
}

// guaranteed returns a pod. Each name is a container with its memory request: "i2Gi" is an init container with 2 GiB,
// "s1Gi" a sidecar, "c1Gi" a container, "c1Gi+4Mi" a container with 4 MiB of huge pages.
func guaranteed(uid string, containers ...string) *corev1.Pod {
	asks := func(text string) corev1.ResourceList {
		memory, huge, _ := strings.Cut(text, "+")
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"),
			corev1.ResourceMemory: resource.MustParse(memory)}
		if huge != "" {
			list["hugepages-2Mi"] = resource.MustParse(huge)
		}
		return list
	}
	return topologytest.Guaranteed(uid, asks, containers...)
}

func (b *bench) admit(pod *corev1.Pod, hint topology.Hint) error {
	return topologytest.Admit(b, b.m, pod, hint)
}

// has checks the memory nodes of the containers: "c1Gi=0".
func (b *bench) has(pod *corev1.Pod, want ...string) {
	b.Helper()
	got := topologytest.Allotted(b, b.m, pod, func(a spec.Allotment) string { return a.Mems })
	if !slices.Equal(got, want) {
		b.Errorf("pod %s has %v, want %v", pod.UID, got, want)
	}
}

func TestAllocate(t *testing.T) {
	t.Parallel()
	type step struct {
		pod  *corev1.Pod
		hint topology.Hint
		want string // the nodes or part of the error
	}
	anywhere, one, both := topology.Hint{}, topology.Hint{Nodes: topology.NewNodes(1), Preferred: true},
		topology.Hint{Nodes: topology.NewNodes(0, 1)}
	for name, steps := range map[string][]step{
		"first node with enough memory": {{guaranteed("a", "c2Gi"), anywhere, "c2Gi=0"}, {guaranteed("b", "c2Gi"), anywhere,
			"c2Gi=1"}, {guaranteed("c", "c2Gi"), anywhere, "c2Gi=1"},
			{guaranteed("d", "c2Gi"), anywhere, "[memorymanager] failed to get the default NUMA affinity, " +
				"no NUMA nodes with enough memory is available"}},
		"node of the hint": {{guaranteed("a", "c2Gi"), one, "c2Gi=1"}},
		"more than one node has": {{guaranteed("a", "c6Gi"), anywhere, "c6Gi=0,1"}, {guaranteed("b", "c1Gi"), both,
			"c1Gi=0,1"}, {guaranteed("c", "c1Mi"), anywhere, "no NUMA nodes with enough memory"}},
		"no group over a node with pods": {{guaranteed("a", "c1Gi"), anywhere, "c1Gi=0"}, {guaranteed("b", "c5Gi"), anywhere,
			"no NUMA nodes with enough memory"}},
		"hint with too little memory": {{guaranteed("a", "c6Gi"), topology.Hint{Nodes: 1}, "c6Gi=0,1"}},
		"hint that cannot be extended": {{guaranteed("a", "c3Gi"), anywhere, "c3Gi=0"}, {guaranteed("b", "c2Gi"),
			topology.Hint{Nodes: 1}, "failed to find NUMA nodes to extend the current topology hint"}},
		"preferred hint that would be extended": {{guaranteed("a", "c3584Mi"), topology.Hint{Nodes: 1, Preferred: true},
			"failed to find the extended preferred hint"}},
		"huge pages": {{guaranteed("a", "c1Gi+32Mi"), anywhere, "c1Gi+32Mi=0"},
			{guaranteed("b", "c1Gi+2Mi"), anywhere, "c1Gi+2Mi=1"}},
		"init containers reuse memory": {{guaranteed("a", "i3Gi", "c2Gi"), anywhere, "i3Gi=0 c2Gi=0"},
			{guaranteed("b", "c1Gi"), anywhere, "c1Gi=1"}},
		"two init containers": {{guaranteed("a", "i2Gi", "i3Gi", "c1Gi", "c2Gi"), anywhere, "i2Gi=0 i3Gi=0 c1Gi=0 c2Gi=0"}},
		"with sidecars": {{guaranteed("a", "s1Gi", "i2Gi", "c2Gi"), anywhere, "s1Gi=0 i2Gi=0 c2Gi=0"},
			{guaranteed("b", "c1Mi"), anywhere, "c1Mi=1"}},
	} {
		b := newBench(t)
		for _, s := range steps {
			if err := b.admit(s.pod, s.hint); err != nil {
				if !strings.Contains(err.Error(), s.want) {
					t.Errorf("%s: pod %s: error %v, want %s", name, s.pod.UID, err, s.want)
				}
				continue
			}
			b.has(s.pod, strings.Fields(s.want)...)
		}
		for _, s := range steps {
			b.m.Release(s.pod.UID)
		}
		if err := b.admit(guaranteed("z", "c7Gi"), topology.Hint{}); err != nil {
			t.Errorf("%s: after the release of all pods: %v", name, err)
		}
	}
}

func TestOtherPodsUseAllNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pod := guaranteed("a", "c2Gi")
	pod.Spec.Containers[0].Resources.Limits = nil
	if err := b.admit(pod, topology.Hint{}); err != nil {
		t.Fatal(err)
	}
	b.has(pod, "c2Gi=")
	if hints := b.m.Hints(pod, &pod.Spec.Containers[0]); len(hints) > 0 {
		t.Errorf("hints: %v", hints)
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, taken, want string
		pod               *corev1.Pod
	}{
		{"either", "c1Mi", "memory: 0* 1*", guaranteed("x", "c2Gi")},
		{"one node with enough memory", "c2Gi", "memory: 1*", guaranteed("x", "c2Gi")},
		{"both nodes, one with pods", "c1Gi", "memory:", guaranteed("x", "c5Gi")},
		{"huge pages", "c1Mi+32Mi", "hugepages-2Mi: 1* memory: 1*", guaranteed("x", "c1Gi+2Mi")},
		{"sidecars", "c1Mi", "memory: 1*", guaranteed("x", "i1Gi", "s1Gi", "c3Gi")},
	} {
		b := newBench(t)
		if err := b.admit(guaranteed("taken", c.taken), topology.Hint{}); err != nil {
			t.Fatal(err)
		}
		if got := words(b.m.PodHints(c.pod)); got != c.want {
			t.Errorf("%s: pod: %s, want %s", c.name, got, c.want)
		}
		if len(c.pod.Spec.InitContainers) == 0 {
			if got := words(b.m.Hints(c.pod, &c.pod.Spec.Containers[0])); got != c.want {
				t.Errorf("%s: container: %s, want %s", c.name, got, c.want)
			}
		}
	}
	b := newBench(t)
	pod := guaranteed("x", "c2Gi")
	if err := b.admit(pod, topology.Hint{Nodes: topology.NewNodes(1)}); err != nil {
		t.Fatal(err)
	}
	if got := words(b.m.Hints(pod, &pod.Spec.Containers[0])); got != "memory: 1*" {
		t.Errorf("hints of an existing allocation: %s", got)
	}
}

func words(answer map[string][]topology.Hint) string {
	var out []string
	for name, hints := range answer {
		text := name + ":"
		for _, h := range hints {
			text += " " + h.Nodes.String()
			if h.Preferred {
				text += "*"
			}
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestRestart(t *testing.T) {
	t.Parallel()
	b, one, two := newFull(t)
	b.start()
	b.has(one, "i3Gi=0", "c2Gi=0")
	b.has(two, "c1Gi+4Mi=1")
	text, err := os.ReadFile(b.file)
	for _, part := range []string{
		`{"policyName":"Static","machineState":{"0":{"numberOfAssignments":2,"memoryMap":{`,
		`"memory":{"total":4294967296,"systemReserved":1073741824,"allocatable":3221225472,"reserved":3221225472,` +
			`"free":0}},"cells":[0]}`,
		`"entries":{"a":{"c2Gi":[{"numaAffinity":[0],"type":"memory","size":2147483648}]`,
	} {
		if err != nil || !strings.Contains(string(text), part) {
			t.Errorf("error %v: no %s in %s", err, part, text)
		}
	}
	b.m.Retain(func(uid types.UID) bool { return uid == "b" })
	b.start()
	if len(b.m.Blocks("a", "c2Gi")) > 0 || len(b.m.Blocks("b", "c1Gi+4Mi")) != 2 || b.m.Lost() != nil {
		t.Errorf("a has %v, b has %v; lost: %v", b.m.Blocks("a", "c2Gi"), b.m.Blocks("b", "c1Gi+4Mi"), b.m.Lost())
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.admit(guaranteed("a", "c2Gi"), topology.Hint{}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	type block map[string]any
	written := func(policy string, blocks ...block) []byte {
		f := checkpoint.File(filepath.Join(t.TempDir(), "f"))
		entries := map[string]map[string][]block{"a": {"c": blocks}}
		if err := f.Save(map[string]any{"policyName": policy, "entries": entries}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(string(f))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, text := range map[string][]byte{
		"truncated": good[:len(good)/2], "empty": nil,
		"changed": []byte(strings.Replace(string(good), "2147483648", "2147483649",
			1)),
		"another policy": written("None"),
		"no such node":   written("Static", block{"numaAffinity": []int{2}, "type": "memory", "size": 1}),
		"no node":        written("Static", block{"numaAffinity": []int{}, "type": "memory", "size": 1}),
		"too much":       written("Static", block{"numaAffinity": []int{0}, "type": "memory", "size": 4 << 30}),
		"two sets": written("Static", block{"numaAffinity": []int{0}, "type": "memory", "size": 1},
			block{"numaAffinity": []int{0, 1}, "type": "memory", "size": 1}),
	} {
		if err := os.WriteFile(b.file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		if lost := b.m.Lost(); lost == nil || !strings.Contains(lost.Error(), "no action is needed") {
			t.Errorf("%s: lost: %v", name, lost)
		}
		if aside, err := os.ReadFile(b.file + ".damaged"); err != nil || string(aside) != string(text) {
			t.Errorf("%s: the .damaged file contains %q, error %v", name, aside, err)
		}
		if err := b.admit(guaranteed("z", "c7Gi"), topology.Hint{}); err != nil {
			t.Errorf("%s: the state is not empty after the start: %v", name, err)
		}
	}
}

// TestRecovered checks that, without the checkpoint, containers keep the memory blocks that they were created with, as
// far as possible.
func TestRecovered(t *testing.T) {
	t.Parallel()
	b, one, two := newFull(t)
	first, second := topologytest.Created(t, b.m, one), topologytest.Created(t, b.m, two)
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	b.start()
	made := slices.Concat(second, first, topologytest.As("more", first))
	for _, odd := range []string{"{", `[{"numaAffinity":[7],"type":"memory","size":1}]`} {
		made = append(made, topology.Container{Pod: "odd", Container: "c",
			Annotations: map[string]string{"io.monopod.container.memory": odd}})
	}
	b.m.Recover(made)
	b.start() // the checkpoint contains the recovered allocations
	if b.m.Lost() != nil {
		t.Fatal(b.m.Lost())
	}
	if again := topologytest.Created(t, b.m, one); !cmp.Equal(again, first) {
		t.Error(cmp.Diff(first, again))
	}
	b.has(two, "c1Gi+4Mi=1")
	if got := b.m.Blocks("more", "c2Gi"); len(got) > 0 {
		t.Errorf("a second pod recovered the same blocks: %v", got)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--memory-manager-policy=Static --reserved-memory=0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=1Gi", ""},
		{"--memory-manager-policy=Static --reserved-memory=0:memory=1Gi --reserved-memory=1:memory=1Gi", ""},
		{"--memory-manager-policy=static", `"static" is neither None nor Static`},
		{"--memory-manager-policy=Static", "Static requires --reserved-memory"},
		{"--reserved-memory=0:memory=1Gi", "policy None reserves nothing"},
		{"--reserved-memory=memory=1Gi", `"memory=1Gi" is not of the form 0:memory=1Gi`},
		{"--reserved-memory=0:cpu=1", `"cpu" is neither memory nor hugepages-<size>`},
		{"--reserved-memory=0:memory=x", `memory: "x" is not a positive amount`},
		{"--reserved-memory=0:memory=1Gi,memory=1Gi", "memory is given twice"},
		{"--reserved-memory=0:memory=1Gi;0:memory=1Gi", "node 0 is given twice"},
	} {
		if _, err := flags(strings.Fields(c.args)...); c.want == "" && err != nil || c.want != "" &&
			!strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestReservations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct{ reserved, whole, want string }{
		{"0:memory=512Mi;1:memory=512Mi", "1Gi", ""},
		{"0:memory=1Gi", "1124Mi", `the total amount "1Gi" of type "memory" is not equal to the value "1124Mi" determined ` +
			`by Node Allocatable feature`},
		{"0:memory=1Gi;2:memory=1Gi", "2Gi", "this machine has no NUMA node 2"},
		{"0:memory=1Gi,hugepages-2Mi=2Mi", "1Gi",
			`the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0"`},
	} {
		if _, err := b.open(c.reserved, c.whole); c.want == "" && err != nil || c.want != "" &&
			!strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
}
