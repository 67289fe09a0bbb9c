package placement_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/podapi/status"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/numa/numatest"
	"monopod/agent/resources/placement"
	"monopod/agent/resources/topology"
	"monopod/agent/resources/topology/topologytest"
)

// node is a node with pods. It records events and updates of containers.
type node struct {
	*testing.T
	cfg  placement.Config
	pods map[types.UID]placement.Pod

	mu     sync.Mutex // guards the fields below
	known  bool
	moved  map[string]string
	events []string
}

// pod is a pod with its observed state; nil: not observed.
type pod struct{ seen *status.Observed }

func (p pod) Object() *corev1.Pod        { return &corev1.Pod{} }
func (p pod) Observed() *status.Observed { return p.seen }
func (p pod) Wake()                      {}

func (n *node) Poke() {}

func (n *node) Event(_, reason, _ string, _ ...any) { n.events = append(n.events, reason) }

func (n *node) UpdateContainerResources(_ context.Context, id string, r *cri.LinuxContainerResources) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.moved[id] = r.CpusetCpus
	return nil
}

// newNode returns a node with four cores of two threads each.
func newNode(t *testing.T, adjust func(*placement.Config)) *node {
	t.Helper()
	n := &node{T: t, pods: map[types.UID]placement.Pod{}, moved: map[string]string{}, cfg: placement.Config{
		DataDir: t.TempDir(), SysRoot: numatest.Shape{Sockets: 1, Nodes: 1, Cores: 4, Threads: 2}.Tree(t),
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"),
			corev1.ResourceMemory: resource.MustParse("8Gi")},
	}}
	adjust(&n.cfg)
	return n
}

func (n *node) placement() *placement.Placement {
	n.Helper()
	p, err := placement.New(placement.Deps{
		Runtime: n, Node: n, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
		Pods:   func() map[types.UID]placement.Pod { return n.pods },
		Pod:    func(uid types.UID) (placement.Pod, bool) { p, ok := n.pods[uid]; return p, ok },
		Known:  func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.known },
		Active: func() []*corev1.Pod { return nil },
	}, n.cfg)
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// guaranteed returns a pod with one container with these requests and limits.
func guaranteed(cpu, memory string) *corev1.Pod {
	asks := func(string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return topologytest.Guaranteed("p", asks, "c1")
}

func static(c *placement.Config) {
	c.CPUs.Policy = cpumanager.Static
	c.Reserve.SystemReserved = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
}

func TestDefaultsDoNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(*placement.Config) {})
	p := n.placement()
	own := guaranteed("2", "1Gi")
	if f := p.Admit(t.Context(), own); f != nil {
		t.Errorf("the pod was rejected: %v", f)
	}
	given, err := p.Allotment(t.Context(), own, &own.Spec.Containers[0])
	if err != nil || given.CPUs != "" || p.Processors() != 0 || p.Infeasible(own, guaranteed("3", "2Gi")) != "" {
		t.Errorf("allotment %+v, %d CPUs, error %v", given, p.Processors(), err)
	}
	p.Run(t.Context()) // returns at once
}

func TestExclusiveCPUs(t *testing.T) {
	t.Parallel()
	p := newNode(t, static).placement()
	own := guaranteed("2", "1Gi")
	if f := p.Admit(t.Context(), own); f != nil {
		t.Fatal(f)
	}
	given, err := p.Allotment(t.Context(), own, &own.Spec.Containers[0])
	if err != nil || given.CPUs != "1,5" || p.Processors() != 8 {
		t.Errorf("allotment %+v of %d CPUs, error %v", given, p.Processors(), err)
	}
	other := guaranteed("7", "1Gi")
	other.UID = "other"
	if f := p.Admit(t.Context(), other); f == nil || f.Reason != topology.ReasonUnexpected {
		t.Errorf("request of too many CPUs: %v", f)
	}
	for text, next := range map[string]*corev1.Pod{`alongside CPU Manager policy "static"`: guaranteed("3", "1Gi"),
		"": guaranteed("2", "2Gi")} {
		if got := p.Infeasible(own, next); !strings.HasSuffix(got, text) || (got == "") != (text == "") {
			t.Errorf("infeasible %q, want %q", got, text)
		}
	}
}

// Containers that an earlier policy pinned are unpinned, but only after all pods were observed.
func TestStaticPolicyDisabled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(*placement.Config) {})
		file := filepath.Join(n.cfg.DataDir, cpumanager.FileName)
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.pods["p"] = pod{&status.Observed{Containers: []status.Container{{ID: "1", Name: "c", State: status.Running},
			{ID: "0", Name: "c", State: status.Exited}}}}
		p := n.placement()
		go p.Run(t.Context())
		time.Sleep(time.Minute)
		if _, err := os.Stat(file); err != nil || len(n.moved) > 0 {
			t.Fatalf("before the observation: checkpoint %v, updated %v", err, n.moved)
		}
		n.mu.Lock()
		n.known = true
		n.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := os.Stat(file); !os.IsNotExist(err) || len(n.moved) != 1 || n.moved["1"] != "0-7" {
			t.Errorf("after the observation: checkpoint %v, updated %v", err, n.moved)
		}
	})
}

func TestLostCheckpointIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t, static)
	if err := os.WriteFile(filepath.Join(n.cfg.DataDir, cpumanager.FileName), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := n.placement()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Run(ctx)
	if !slices.Contains(n.events, "CPUManagerStateLost") {
		t.Errorf("events %v", n.events)
	}
}

// Offer keeps extended resources of other sources in the status of the node, and does not change other resources.
func TestOffer(t *testing.T) {
	t.Parallel()
	p := newNode(t, func(*placement.Config) {}).placement()
	one := resource.MustParse("1")
	next := corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: one},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: one}}
	p.Offer(&next,
		&corev1.NodeStatus{Capacity: corev1.ResourceList{"example.com/dongle": one, corev1.ResourceMemory: one}}, true)
	if len(next.Capacity) != 2 || next.Allocatable.Name("example.com/dongle", resource.DecimalSI).Value() != 1 {
		t.Errorf("the status has %v", next)
	}
}

func TestMemoryPolicyDisabled(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(*placement.Config) {})
	file := filepath.Join(n.cfg.DataDir, memorymanager.FileName)
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.placement()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the checkpoint of a disabled policy still exists: %v", err)
	}
}
