package status_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/podapi/status"
)

func at(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }

func running(name string, attempt uint32) status.Container {
	return status.Container{ID: name + "-id", Name: name, Attempt: attempt, State: status.Running,
		StartedAt: at(int(attempt)), SandboxID: "s"}
}

func exited(name string, attempt uint32, code int32) status.Container {
	c := running(name, attempt)
	c.Exit(code, at(100))
	return c
}

func seen(containers ...status.Container) *status.Observed {
	return &status.Observed{
		Sandboxes:  []status.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: containers,
	}
}

func pod(policy corev1.RestartPolicy, containers ...string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
	}
	return p
}

func withInit(p *corev1.Pod, inits ...corev1.Container) *corev1.Pod {
	p.Spec.InitContainers = inits
	return p
}

const (
	always    = corev1.RestartPolicyAlways
	onFailure = corev1.RestartPolicyOnFailure
	never     = corev1.RestartPolicyNever
)

func TestPhase(t *testing.T) {
	t.Parallel()
	one := corev1.Container{Name: "i"}
	side := corev1.Container{Name: "i", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		seen     *status.Observed
		waiting  map[string]status.Waiting
		terminal bool
		want     corev1.PodPhase
	}{
		"new pod":         {pod: pod(always, "a"), seen: &status.Observed{}, want: corev1.PodPending},
		"one of two runs": {pod: pod(always, "a", "b"), seen: seen(running("a", 0)), want: corev1.PodPending},
		"all run": {pod: pod(always, "a", "b"), seen: seen(running("a", 0), running("b", 0)),
			want: corev1.PodRunning},
		"crashed, will restart": {pod: pod(always, "a"), seen: seen(exited("a", 0, 1)), want: corev1.PodRunning},
		"crash loop": {pod: pod(always, "a"), seen: seen(exited("a", 0, 1)),
			waiting: map[string]status.Waiting{"a": {Reason: "CrashLoopBackOff"}}, want: corev1.PodRunning},
		"never, succeeded": {pod: pod(never, "a"), seen: seen(exited("a", 0, 0)), want: corev1.PodSucceeded},
		"never, failed":    {pod: pod(never, "a"), seen: seen(exited("a", 0, 1)), want: corev1.PodFailed},
		"never, one still runs": {pod: pod(never, "a", "b"), seen: seen(exited("a", 0, 1), running("b", 0)),
			want: corev1.PodRunning},
		"on failure, succeeded": {pod: pod(onFailure, "a"), seen: seen(exited("a", 0, 0)), want: corev1.PodSucceeded},
		"on failure, failed":    {pod: pod(onFailure, "a"), seen: seen(exited("a", 0, 1)), want: corev1.PodRunning},
		"deleted, succeeded": {pod: pod(always, "a"), seen: seen(exited("a", 0, 0)), terminal: true,
			want: corev1.PodSucceeded},
		"deleted, killed": {pod: pod(always, "a"), seen: seen(exited("a", 0, 137)), terminal: true, want: corev1.PodFailed},
		"deleted before it started": {pod: pod(always, "a"), seen: &status.Observed{}, terminal: true,
			want: corev1.PodFailed},
		"init runs": {pod: withInit(pod(always, "a"), one), seen: seen(running("i", 0)), want: corev1.PodPending},
		"init done": {pod: withInit(pod(always, "a"), one), seen: seen(exited("i", 0, 0), running("a", 0)),
			want: corev1.PodRunning},
		"init failed":        {pod: withInit(pod(never, "a"), one), seen: seen(exited("i", 0, 1)), want: corev1.PodFailed},
		"init failed, again": {pod: withInit(pod(always, "a"), one), seen: seen(exited("i", 0, 1)), want: corev1.PodPending},
		"sidecar up": {pod: withInit(pod(always, "a"), side), seen: seen(running("i", 0), running("a", 0)),
			want: corev1.PodRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := status.Of(status.Input{Pod: c.pod, Observed: c.seen, Waiting: c.waiting, Terminal: c.terminal, Now: at(0)})
			if got.Phase != c.want {
				t.Errorf("phase %s, want %s", got.Phase, c.want)
			}
		})
	}
}

func TestContainerStates(t *testing.T) {
	t.Parallel()
	p := pod(always, "a")
	oom := running("a", 2)
	oom.OOM = true
	oom.Exit(137, at(9))
	got := status.Of(
		status.Input{
			Pod:      p,
			Observed: seen(oom, exited("a", 1, 3)),
			Waiting:  map[string]status.Waiting{"a": {Reason: "CrashLoopBackOff", Message: "m"}},
			Now:      at(0),
		},
	)
	s := got.ContainerStatuses[0]
	if s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.RestartCount != 2 || s.Ready {
		t.Errorf("state: %+v", s)
	}
	if last := s.LastTerminationState.Terminated; last == nil || last.Reason != "OOMKilled" || last.ExitCode != 137 ||
		!last.FinishedAt.Time.Equal(at(9)) {
		t.Errorf("last state: %+v", last)
	}
	child := running("a", 0)
	child.OOM = true // the kernel killed a child process; the container exited with 0
	child.Exit(0, at(9))
	if child.Reason != "Completed" {
		t.Errorf("the reason is %s, want Completed", child.Reason)
	}
	got = status.Of(status.Input{Pod: p, Observed: seen(running("a", 1), exited("a", 0, 3)), Now: at(0)})
	if s = got.ContainerStatuses[0]; s.State.Running == nil || s.LastTerminationState.Terminated.ExitCode != 3 ||
		!s.Ready ||
		s.ContainerID != "containerd://a-id" {
		t.Errorf("after a restart: %+v", s)
	}
}

func TestLostContainer(t *testing.T) {
	t.Parallel()
	p := pod(always, "a")
	p.Status = status.Of(status.Input{Pod: p, Observed: seen(running("a", 1)), Now: at(0)})
	got := status.Of(status.Input{Pod: p, Observed: &status.Observed{}, Terminal: true, Now: at(5)})
	if end := got.ContainerStatuses[0].State.Terminated; end == nil || end.Reason != "ContainerStatusUnknown" ||
		end.ExitCode != 137 ||
		got.ContainerStatuses[0].RestartCount != 1 {
		t.Errorf("state: %+v", got.ContainerStatuses[0])
	}
	if got.PodIP != "10.0.0.2" {
		t.Errorf("the address is %q after the loss of the sandbox", got.PodIP)
	}
	p.Status = status.Of(status.Input{Pod: p, Observed: seen(exited("a", 1, 7)), Terminal: true, Now: at(5)})
	got = status.Of(status.Input{Pod: p, Observed: &status.Observed{}, Terminal: true, Now: at(6)})
	if end := got.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 7 {
		t.Errorf("the known exit code changed: %+v", end)
	}
}

func TestPodIPs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reported, host, want []string }{
		{nil, []string{"1.2.3.4"}, nil},
		{[]string{"10.0.0.2"}, []string{"1.2.3.4"}, []string{"10.0.0.2"}},
		{[]string{"fd00::2", "10.0.0.2"}, []string{"1.2.3.4", "fd01::4"}, []string{"10.0.0.2", "fd00::2"}},
		{[]string{"10.0.0.2", "fd00::2"}, []string{"fd01::4"}, []string{"fd00::2", "10.0.0.2"}},
		{[]string{"10.0.0.2", "10.0.1.2", "fd00::2", "fd00::3"}, []string{"1.2.3.4"}, []string{"10.0.0.2", "fd00::2"}},
		{[]string{"fd00::2"}, []string{"1.2.3.4"}, []string{"fd00::2"}},
	} {
		if got := status.PodIPs(tt.reported, tt.host); !slices.Equal(got, tt.want) {
			t.Errorf("runtime reports %s, node has %s: got %s, want %s", tt.reported, tt.host, got, tt.want)
		}
	}
}

// The messages about readiness gates are the same as upstream's.
func TestReadinessGates(t *testing.T) {
	t.Parallel()
	p := pod(always, "a")
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{
		{ConditionType: "example.com/a"},
		{ConditionType: "example.com/b"},
		{ConditionType: "example.com/c"},
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "example.com/a", Status: corev1.ConditionTrue},
		{Type: "example.com/b", Status: corev1.ConditionFalse},
	}
	s := status.Of(status.Input{Pod: p, Observed: seen(running("a", 0)), HostIPs: []string{"1.2.3.4"}, Now: at(0)})
	c := status.Condition(s.Conditions, corev1.PodReady)
	const want = `the status of pod readiness gate "example.com/b" is not "True", but False, ` +
		`corresponding condition of pod readiness gate "example.com/c" does not exist.`
	if c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || c.Message != want {
		t.Errorf("condition %+v, want message %s", c, want)
	}
}

// The status has the image name of the runtime, or that of the spec before the container exists.
func TestImageName(t *testing.T) {
	t.Parallel()
	p := pod(always, "a", "b")
	p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "busybox:1.36", "busybox:1.36"
	c := running("a", 0)
	c.Image = "docker.io/library/busybox:1.36"
	s := status.Of(status.Input{Pod: p, Observed: seen(c), HostIPs: []string{"1.2.3.4"}, Now: at(0)})
	if got := s.ContainerStatuses[0].Image; got != c.Image {
		t.Errorf("image of a running container: %s, want %s", got, c.Image)
	}
	if got := s.ContainerStatuses[1].Image; got != "busybox:1.36" {
		t.Errorf("image of a container that does not exist: %s", got)
	}
}

// The same observation at a later time does not change the status.
func TestStable(t *testing.T) {
	t.Parallel()
	p := pod(always, "a")
	p.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}}
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	p.Status = status.Of(status.Input{Pod: p, Observed: seen(running("a", 0)), HostIPs: []string{"1.2.3.4"}, Now: at(0)})
	if c := status.Condition(p.Status.Conditions, corev1.PodReady); c.Status != corev1.ConditionTrue {
		t.Errorf("the Ready condition is %+v", c)
	}
	if status.Condition(p.Status.Conditions, "example.com/gate") == nil {
		t.Error("the condition of another component is missing")
	}
	again := status.Of(status.Input{Pod: p, Observed: seen(running("a", 0)), HostIPs: []string{"1.2.3.4"}, Now: at(60)})
	if !apiequality.Semantic.DeepEqual(p.Status, again) {
		t.Errorf("the status changed:\n%+v\n%+v", p.Status, again)
	}
	unready := status.Of(
		status.Input{
			Pod:      p,
			Observed: seen(running("a", 0)),
			Ready:    func(string) bool { return false },
			HostIPs:  []string{"1.2.3.4"},
			Now:      at(60),
		},
	)
	c := status.Condition(unready.Conditions, corev1.PodReady)
	if c.Status != corev1.ConditionFalse || c.Reason != "ContainersNotReady" ||
		c.Message != "containers with unready status: [a]" ||
		!c.LastTransitionTime.Equal(&metav1.Time{Time: at(60)}) {
		t.Errorf("the Ready condition of an unready pod is %+v", c)
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	p := pod(always, "a")
	got := status.Of(
		status.Input{
			Pod:      p,
			Observed: &status.Observed{},
			Terminal: true,
			Failure:  &status.Failure{Reason: "OutOfcpu", Message: "m"},
			Now:      at(0),
		},
	)
	if got.Phase != corev1.PodFailed || got.Reason != "OutOfcpu" || got.Message != "m" || len(got.ContainerStatuses) != 0 {
		t.Errorf("status: %+v", got)
	}
	p.Status = got
	got = status.Of(status.Input{Pod: p, Observed: seen(running("a", 0)), Now: at(0)})
	if got.Phase != corev1.PodFailed || got.Reason != "OutOfcpu" {
		t.Errorf("the status of a failed pod changed: %+v", got)
	}
}

func TestQOS(t *testing.T) {
	t.Parallel()
	res := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, s := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if s != "" {
				out[name] = resource.MustParse(s)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		"nothing":      {nil, nil, corev1.PodQOSBestEffort},
		"limits only":  {nil, res("1", "1Gi"), corev1.PodQOSGuaranteed},
		"equal":        {res("1", "1Gi"), res("1", "1Gi"), corev1.PodQOSGuaranteed},
		"one limit":    {nil, res("1", ""), corev1.PodQOSBurstable},
		"less request": {res("500m", "1Gi"), res("1", "1Gi"), corev1.PodQOSBurstable},
		"request only": {res("", "1Gi"), nil, corev1.PodQOSBurstable},
	} {
		p := pod(always, "a")
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}
		if got := status.QOS(p); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
