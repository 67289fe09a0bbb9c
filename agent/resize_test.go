package agent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/apiserver/kit/client"
)

func resources(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// resize requests other resources for a pod's one container.
func (w *world) resize(name, cpu, memory string) {
	w.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: name, Subresource: "resize"}
	_, err := w.api.Update(w.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Pod)
		next.Spec.Containers[0].Resources = resources(cpu, memory)
		return next, nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// has checks the container's resources in the runtime and in the status.
func (w *world) has(name string) (shares, memory int64, reported *corev1.ResourceRequirements) {
	w.Helper()
	containers, err := w.rt.ListContainers(w.Context(),
		&cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if err != nil || len(containers) != 1 {
		w.Fatalf("%v, %v", containers, err)
	}
	s, err := w.rt.ContainerStatus(w.Context(), containers[0].Id)
	if err != nil {
		w.Fatal(err)
	}
	r := s.Resources.Linux
	return r.CpuShares, r.MemoryLimitInBytes, w.get(name).Status.ContainerStatuses[0].Resources
}

func (w *world) sized(name string) *corev1.Pod {
	p := pod(name)
	p.Spec.Containers[0].Resources = resources("100m", "64Mi")
	return p
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// A resize raises and lowers the resources of a running container without a restart.
func TestResize(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(w.sized("p"))
		w.until(time.Second, "p", ready)
		if _, _, reported := w.has("p"); reported == nil || reported.Limits.Memory().String() != "64Mi" {
			t.Errorf("the status reports at first: %+v", reported)
		}
		w.resize("p", "500m", "128Mi")
		w.after(time.Second)
		shares, memory, reported := w.has("p")
		if shares != 512 || memory != 128<<20 || reported.Requests.Cpu().String() != "500m" {
			t.Errorf("has %d shares, %d bytes; reported %+v", shares, memory, reported)
		}
		p := w.get("p")
		s := p.Status.ContainerStatuses[0]
		if s.RestartCount != 0 || s.AllocatedResources.Cpu().String() != "500m" || p.Status.ObservedGeneration != 2 ||
			condition(p, corev1.PodResizeInProgress) != nil || condition(p, corev1.PodResizePending) != nil {
			t.Errorf("status %+v", p.Status)
		}
		w.stop()
		w.startAgent()
		before := w.callCount()
		w.after(time.Second)
		if _, _, reported := w.has("p"); reported.Requests.Cpu().String() != "500m" ||
			w.called("UpdateContainerResources") != 1 {
			t.Errorf("after a restart of the agent: %+v, %d calls", reported, w.callCount()-before)
		}
	})
}

func TestResizeByRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.sized("p")
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory,
			RestartPolicy: corev1.RestartContainer}}
		w.create(p)
		w.until(time.Second, "p", ready)
		w.resize("p", "200m", "64Mi")
		w.after(time.Second)
		if p := w.get("p"); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Error("the container restarted for a resize of cpu")
		}
		w.resize("p", "200m", "128Mi")
		w.until(20*time.Second, "p", restarts(1))
		w.until(20*time.Second, "p", ready)
		if _, memory, reported := w.has("p"); memory != 128<<20 || reported.Limits.Memory().String() != "128Mi" {
			t.Errorf("has %d bytes, reported %+v", memory, reported)
		}
	})
}

// The agent rejects a resize beyond the node's capacity; the status says why.
func TestResizeBeyondCapacityIsPending(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(w.sized("p"))
		w.until(time.Second, "p", ready)
		w.resize("p", "1000", "64Mi")
		w.after(time.Second)
		c := condition(w.get("p"), corev1.PodResizePending)
		if c == nil || c.Reason != corev1.PodReasonInfeasible ||
			!strings.Contains(c.Message, "Node didn't have enough resource: cpu") {
			t.Errorf("condition %+v", c)
		}
		if _, _, reported := w.has("p"); reported.Requests.Cpu().String() != "100m" {
			t.Errorf("reported %+v", reported)
		}
		w.stop()
		w.startAgent()
		w.after(time.Minute)
		if c := condition(w.get("p"), corev1.PodResizePending); c == nil {
			t.Error("a restart of the agent removed the condition PodResizePending")
		}
		w.resize("p", "200m", "64Mi")
		w.after(time.Second)
		if c := condition(w.get("p"), corev1.PodResizePending); c != nil {
			t.Errorf("still pending: %+v", c)
		}
		if _, _, reported := w.has("p"); reported.Requests.Cpu().String() != "200m" {
			t.Errorf("reported %+v", reported)
		}
	})
}

func TestResizeRejectedByRuntime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(w.sized("p"))
		w.until(time.Second, "p", ready)
		w.failing(func(op, _ string) error {
			if op == "UpdateContainerResources" {
				return errors.New("device or resource busy")
			}
			return nil
		})
		w.resize("p", "200m", "64Mi")
		w.after(time.Second)
		c := condition(w.get("p"), corev1.PodResizeInProgress)
		if c == nil || c.Reason != corev1.PodReasonError || c.Message != "device or resource busy" {
			t.Errorf("condition %+v", c)
		}
		w.failing(func(string, string) error { return nil })
		w.after(15 * time.Second)
		if c := condition(w.get("p"), corev1.PodResizeInProgress); c != nil {
			t.Errorf("the condition remains: %+v", c)
		}
		if shares, _, _ := w.has("p"); shares != 204 {
			t.Errorf("%d CPU shares", shares)
		}
	})
}

// level returns a pod with pod-level resources; its container has no limits.
func (w *world) level(cpu, memory string) *corev1.Pod {
	p := pod("p")
	r := resources(cpu, memory)
	p.Spec.Resources = &r
	return p
}

func (w *world) resizeLevel(cpu, memory string) {
	w.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: "p", Subresource: "resize"}
	_, err := w.api.Update(w.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Pod)
		r := resources(cpu, memory)
		next.Spec.Resources = &r
		return next, nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestResizeOfPodLevel checks that pod-level resources change in place, with events, and that they limit a container
// without its own limits.
func TestResizeOfPodLevel(t *testing.T) {
	inWorld(t, func(w *world) {
		w.create(w.level("100m", "64Mi"))
		w.until(time.Second, "p", ready)
		if _, memory, _ := w.has("p"); memory != 64<<20 {
			t.Errorf("a container without a limit has %d bytes", memory)
		}
		w.resizeLevel("1000", "64Mi")
		w.after(time.Second)
		w.resizeLevel("500m", "128Mi")
		w.after(time.Second)
		p := w.get("p")
		if _, memory, _ := w.has("p"); memory != 128<<20 || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("has %d bytes, status %+v", memory, p.Status.ContainerStatuses[0])
		}
		if r := p.Status.Resources; r == nil || r.Limits.Memory().String() != "128Mi" ||
			p.Status.AllocatedResources.Cpu().String() != "500m" {
			t.Errorf("status %+v, %v", r, p.Status.AllocatedResources)
		}
		for _, c := range []corev1.PodConditionType{corev1.PodResizeInProgress, corev1.PodResizePending} {
			if condition(p, c) != nil {
				t.Errorf("the pod still has the condition %s", c)
			}
		}
		var resized []string
		for _, e := range w.recorded() {
			if what, _, ok := strings.Cut(e, ": {"); ok && strings.Contains(e, "Resize") {
				resized = append(resized, what)
			}
		}
		want := []string{"Warning p ResizeInfeasible: Pod resize Infeasible", "Normal p ResizeStarted: Pod resize started",
			"Normal p ResizeCompleted: Pod resize completed"}
		if !slices.Equal(resized, want) {
			t.Errorf("events %q, want %q", resized, want)
		}
		w.stop()
		w.startAgent()
		w.after(time.Second)
		if _, memory, _ := w.has("p"); memory != 128<<20 || w.called("UpdateContainerResources") != 1 {
			t.Errorf("after a restart of the agent: %d bytes, %d calls", memory, w.called("UpdateContainerResources"))
		}
	})
}

// TestResizeOfPodLevelByRestart checks that a new pod-level limit restarts a container whose resize policy requires it.
func TestResizeOfPodLevelByRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.level("100m", "64Mi")
		p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory,
			RestartPolicy: corev1.RestartContainer}}
		w.create(p)
		w.until(time.Second, "p", ready)
		w.resizeLevel("100m", "128Mi")
		w.until(20*time.Second, "p", restarts(1))
		w.until(20*time.Second, "p", ready)
		w.after(time.Second)
		p = w.get("p")
		if _, memory, _ := w.has("p"); memory != 128<<20 || p.Status.Resources.Limits.Memory().String() != "128Mi" ||
			p.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("has %d bytes, status %+v", memory, p.Status)
		}
	})
}
