package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"monopod/agent"
	"monopod/agent/resources/cpumanager"
	"monopod/agent/resources/memorymanager"
	"monopod/agent/resources/numa/numatest"
	"monopod/agent/resources/topology"
)

// laptop has four cores with two threads each: 0,4 1,5 2,6 3,7.
var laptop = numatest.Shape{Sockets: 1, Nodes: 1, Cores: 4, Threads: 2}

// pinned restarts the agent on a simulated machine, with CPU 0 reserved and the settings of adjust.
func (w *world) pinned(shape numatest.Shape, adjust func(*agent.Config)) {
	w.Helper()
	w.stop()
	sys := shape.Tree(w)
	w.adjust = func(c *agent.Config) {
		c.SysRoot, c.CPUs.Policy, c.Reserve.ReservedCPUs = sys, cpumanager.Static, cpuset.New(0)
		if adjust != nil {
			adjust(c)
		}
	}
	w.startAgent()
	w.after(100 * time.Millisecond) // until the Node has the capacity of the simulated machine
}

// owning is a Guaranteed pod, which owns exclusive CPUs if cpu is a whole number.
func owning(name, cpu string) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers[0].Resources = resources(cpu, "64Mi")
	return p
}

// runs creates a pod and waits until it is ready.
func (w *world) runs(p *corev1.Pod) {
	w.Helper()
	w.create(p)
	w.until(time.Second, p.Name, ready)
}

// on checks the CPU sets of the running containers in the runtime, by the names of their pods.
func (w *world) on(want map[string]string) {
	w.Helper()
	w.after(100 * time.Millisecond)
	list, err := w.rt.ListContainers(w.Context(),
		&cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if err != nil || len(list) != len(want) {
		w.Fatalf("%d containers, want %d; error %v", len(list), len(want), err)
	}
	for _, c := range list {
		s, err := w.rt.ContainerStatus(w.Context(), c.Id)
		if err != nil {
			w.Fatal(err)
		}
		pod := c.Labels["io.kubernetes.pod.name"]
		got := s.Resources.Linux.CpusetCpus
		if mems := s.Resources.Linux.CpusetMems; mems != "" {
			got += "/" + mems
		}
		if got != want[pod] {
			w.Errorf("%s is on %q, want %q", pod, got, want[pod])
		}
	}
}

func (w *world) refused(name, reason, message string) {
	w.Helper()
	w.until(time.Second, name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if p := w.get(name); p.Status.Reason != reason || p.Status.Message != message {
		w.Errorf("%s: %s: %s", name, p.Status.Reason, p.Status.Message)
	}
}

// TestExclusiveCPUs checks that running containers of the shared pool lose exclusive CPUs at once and get them back
// later, and that a restart of the agent changes nothing.
func TestExclusiveCPUs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, nil)
		w.runs(pod("shared"))
		w.on(map[string]string{"shared": "0-7"})
		w.runs(owning("own", "2"))
		w.on(map[string]string{"shared": "0,2-4,6-7", "own": "1,5"})
		w.stop()
		w.startAgent()
		w.runs(pod("more"))
		w.on(map[string]string{"shared": "0,2-4,6-7", "own": "1,5", "more": "0,2-4,6-7"})
		w.after(time.Minute)
		calls := w.called("UpdateContainerResources")
		w.after(time.Hour)
		if now := w.called("UpdateContainerResources"); now != calls {
			w.Errorf("%d updates while nothing happened", now-calls)
		}
		w.delete("own", 0)
		w.until(5*time.Second, "own", gone)
		w.on(map[string]string{"shared": "0-7", "more": "0-7"})
	})
}

// TestCPUsOfDeletedPodsAreReleased checks that the CPUs of a pod that was deleted while no agent ran are free.
func TestCPUsOfDeletedPodsAreReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, nil)
		w.runs(owning("old", "7"))
		w.stop()
		w.delete("old", 0)
		w.startAgent()
		w.after(time.Minute)
		w.runs(owning("new", "7"))
		w.on(map[string]string{"new": "1-7"})
	})
}

// TestExclusiveCPUsAfterTornCheckpoint checks that the agent recovers from a damaged checkpoint by itself.
func TestExclusiveCPUsAfterTornCheckpoint(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, nil)
		w.runs(owning("first", "2"))
		w.runs(owning("own", "2"))
		w.delete("first", 1)
		w.until(5*time.Second, "first", gone)
		calls := w.called("UpdateContainerResources")
		w.stop()
		if err := os.WriteFile(filepath.Join(w.dir, cpumanager.FileName), []byte(`{"policyName":"sta`), 0o600); err != nil {
			t.Fatal(err)
		}
		w.startAgent()
		w.after(time.Second)
		if !w.hasEvent("CPUManagerStateLost") {
			t.Errorf("events: %v", w.recorded())
		}
		w.on(map[string]string{"own": "2,6"}) // a new allocation would choose 1,5
		if now := w.called("UpdateContainerResources"); now != calls {
			w.Errorf("%d updates", now-calls)
		}
	})
}

func TestPolicyNoneAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, nil)
		w.runs(owning("own", "2"))
		w.runs(pod("shared"))
		w.stop()
		none := w.adjust
		w.adjust = func(c *agent.Config) { none(c); c.CPUs.Policy = cpumanager.None }
		w.startAgent()
		w.after(5 * time.Second)
		w.on(map[string]string{"own": "0-7", "shared": "0-7"})
		if files, _ := filepath.Glob(filepath.Join(w.dir, "*_manager_state*")); len(files) > 0 {
			t.Errorf("checkpoints left: %v", files)
		}
	})
}

// TestNoPolicy checks that, without a policy, the agent writes no checkpoint and sets no CPU set.
func TestNoPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		w.runs(owning("own", "1"))
		w.on(map[string]string{"own": ""})
		w.after(time.Hour)
		if n := w.called("UpdateContainerResources"); n > 0 {
			t.Errorf("%d calls of UpdateContainerResources, want none", n)
		}
		if files, _ := filepath.Glob(filepath.Join(w.dir, "*_manager_state*")); len(files) > 0 {
			t.Errorf("checkpoints written: %v", files)
		}
	})
}

// TestTopologyRejectsPod checks that CPUs and memory are on one NUMA node, or that the node rejects the pod with
// upstream's message and allocates nothing.
func TestTopologyRejectsPod(t *testing.T) {
	inWorld(t, func(w *world) {
		two := numatest.Shape{Sockets: 2, Nodes: 1, Cores: 4, Threads: 1} // nodes 0-3 and 4-7
		w.pinned(two, func(c *agent.Config) {
			c.Topology = topology.Config{Policy: topology.SingleNode, Scope: topology.ScopeContainer}
			c.Memory = memorymanager.Config{Policy: memorymanager.Static, Reserved: map[int]corev1.ResourceList{0: {}}}
		})
		w.runs(owning("a", "2"))
		w.runs(owning("b", "3"))
		w.on(map[string]string{"a": "1-2/0", "b": "4-6/1"})
		w.create(owning("c", "2"))
		w.refused("c", "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality")
		w.runs(owning("d", "1"))
		w.on(map[string]string{"a": "1-2/0", "b": "4-6/1", "d": "3/0"})
		w.delete("b", 1)
		w.until(5*time.Second, "b", gone)
		w.runs(owning("e", "4"))
		w.on(map[string]string{"a": "1-2/0", "d": "3/0", "e": "4-7/1"})
	})
}

func TestFullCoresRejected(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, func(c *agent.Config) { c.CPUs.Options = map[string]string{"full-pcpus-only": "true"} })
		w.create(owning("odd", "1"))
		w.refused("odd", "SMTAlignmentError",
			"Pod was rejected: SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2")
		w.runs(owning("even", "6"))
		w.on(map[string]string{"even": "1-3,5-7"})
	})
}

func TestResizeOfExclusiveCPUs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pinned(laptop, nil)
		w.runs(owning("own", "2"))
		w.resize("own", "3", "64Mi")
		w.until(time.Second, "own", func(p *corev1.Pod) bool {
			c := condition(p, corev1.PodResizePending)
			return c != nil && c.Reason == "Infeasible" && strings.Contains(c.Message, `alongside CPU Manager policy "static"`)
		})
		w.on(map[string]string{"own": "1,5"})
		w.resize("own", "2", "128Mi") // the CPUs do not change
		w.until(time.Second, "own", func(p *corev1.Pod) bool { return condition(p, corev1.PodResizePending) == nil })
	})
}
