package resize_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/pod/resize"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

// amounts returns requests and equal limits; an empty string omits the resource.
func amounts(cpu, memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// pod returns a pod with one container, c.
func pod(cpu, memory string, policy ...corev1.ContainerResizePolicy) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: amounts(cpu, memory),
		ResizePolicy: policy}}}}
}

func cpu(r *corev1.ResourceRequirements) string { return r.Requests.Cpu().String() }

func TestRequested(t *testing.T) {
	t.Parallel()
	other := pod("1", "1Gi")
	other.Spec.Containers[0].Name = "other"
	onlyLimit := pod("1", "1Gi")
	onlyLimit.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
	for name, c := range map[string]struct {
		next             *corev1.Pod
		asked, requested bool // the resources differ, the CPU request differs
	}{
		"the same":          {pod("1000m", "1024Mi"), false, false},
		"more cpu":          {pod("2", "1Gi"), true, true},
		"more memory":       {pod("1", "2Gi"), true, false},
		"higher cpu limit":  {onlyLimit, true, false},
		"no cpu":            {pod("", "1Gi"), true, true},
		"another container": {other, false, false},
	} {
		had := pod("1", "1Gi")
		if got := resize.Requested(&c.next.Spec, &had.Spec); got != c.asked {
			t.Errorf("%s: Requested returned %v", name, got)
		}
		if got := spec.RequestChanged(&c.next.Spec, &had.Spec, corev1.ResourceCPU); got != c.requested {
			t.Errorf("%s: RequestChanged returned %v", name, got)
		}
	}
}

func TestFreeResources(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"),
		corev1.ResourcePods: resource.MustParse("9")}
	others := []*corev1.Pod{pod("2", "")}
	for name, c := range map[string]struct{ cpu, reason string }{
		"fits":       {"2", ""},
		"deferred":   {"3", corev1.PodReasonDeferred},
		"infeasible": {"5", corev1.PodReasonInfeasible},
	} {
		got := resize.Pending(pod(c.cpu, ""), others, node)
		if got == nil && c.reason != "" || got != nil && (got.Reason != c.reason || got.Type != corev1.PodResizePending) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := resize.Pending(pod("5", ""), nil, node); got.Message == "" || got.Message[:5] != "Node " {
		t.Errorf("message %q", got.Message)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	restart := corev1.ContainerResizePolicy{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		state    status.State
		restarts int
		changes  int
	}{
		"nothing new":          {pod("1", "1Gi", restart), status.Running, 0, 0},
		"cpu in place":         {pod("2", "1Gi", restart), status.Running, 0, 1},
		"memory by a restart":  {pod("1", "2Gi", restart), status.Running, 1, 0},
		"both by a restart":    {pod("2", "2Gi", restart), status.Running, 1, 0},
		"memory in place":      {pod("1", "2Gi"), status.Running, 0, 1},
		"terminated container": {pod("2", "2Gi"), status.Exited, 0, 0},
		"unknown container":    {&corev1.Pod{}, status.Running, 0, 0},
	} {
		has := amounts("1", "1Gi")
		seen := &status.Observed{Containers: []status.Container{{ID: "1", Name: "c", State: c.state, Resources: &has}}}
		kills, changes := resize.Plan(c.pod, &corev1.ResourceRequirements{}, seen)
		if len(kills) != c.restarts || len(changes) != c.changes {
			t.Errorf("%s: restarts %v, changes %v", name, kills, changes)
		}
	}
}

func TestKeepAndWidest(t *testing.T) {
	t.Parallel()
	next, had := pod("1", "2Gi"), pod("2", "1Gi")
	if kept := resize.KeepResources(next, had); cpu(&kept.Spec.Containers[0].Resources) != "2" ||
		cpu(&next.Spec.Containers[0].Resources) != "1" {
		t.Errorf("with the previous resources: %v, original: %v", kept.Spec, next.Spec)
	}
	has := amounts("2", "1Gi")
	wide := resize.Widest(next, &corev1.ResourceRequirements{},
		&status.Observed{Containers: []status.Container{{Name: "c", Resources: &has}}})
	if r := wide.Spec.Containers[0].Resources; cpu(&r) != "2" || r.Limits.Memory().String() != "2Gi" {
		t.Errorf("widest %v", r)
	}
}

// TestLevel checks that Level returns only resources that the spec of the pod itself sets.
func TestLevel(t *testing.T) {
	t.Parallel()
	p := pod("1", "1Gi")
	p.Status.Resources = new(amounts("1", "1Gi"))
	if got := resize.Level(p); got != nil {
		t.Errorf("a pod without pod-level resources has %v", got)
	}
	p.Spec.Resources = new(amounts("2", ""))
	if got := resize.Level(p); cpu(got) != "1" || len(got.Requests) != 1 || len(got.Limits) != 1 {
		t.Errorf("a pod with pod-level CPU has %v", got)
	}
}

func TestAllocated(t *testing.T) {
	t.Parallel()
	p := pod("2", "1Gi")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://1",
		Resources: new(amounts("1", "1Gi"))}}
	if got := resize.Allocated(p); got != p {
		t.Error("Allocated changed a pod without a pending resize")
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}}
	if got := resize.Allocated(p); cpu(&got.Spec.Containers[0].Resources) != "1" {
		t.Errorf("a pod with a pending resize has %v", got.Spec.Containers[0].Resources)
	}
	for id, known := range map[string]bool{"": true, "1": true, "2": false} {
		if got := resize.Stored(p, "c", id); (got != nil) != known {
			t.Errorf("Stored of container %q: %v", id, got)
		}
	}
}
