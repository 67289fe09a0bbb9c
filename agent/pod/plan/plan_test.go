package plan_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/plan"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
)

func containers(names ...string) []corev1.Container {
	var out []corev1.Container
	for _, n := range names {
		out = append(out, corev1.Container{Name: n})
	}
	return out
}

func in(state status.State, name, sandbox string, code int32) status.Container {
	return status.Container{ID: name + "@" + sandbox, Name: name, SandboxID: sandbox, State: state, ExitCode: code}
}

func TestFor(t *testing.T) {
	t.Parallel()
	up := []status.Sandbox{{ID: "s", Ready: true}}
	down := []status.Sandbox{{ID: "s", Attempt: 3}}
	side := corev1.Container{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	const run, end = status.Running, status.Exited
	for name, c := range map[string]struct {
		policy  corev1.RestartPolicy
		init    []corev1.Container
		seen    status.Observed
		failed  string
		starter bool // sidecars have not started
		start   []string
		kill    []string
		sandbox bool
		attempt uint32
	}{
		"new pod":       {start: []string{"a", "b"}, sandbox: true},
		"new pod, init": {init: containers("i"), start: []string{"i"}, sandbox: true},
		"sandbox up":    {seen: status.Observed{Sandboxes: up}, start: []string{"a", "b"}},
		"all run": {seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(run, "a", "s", 0), in(run, "b", "s", 0)}}},
		"one crashed": {seen: status.Observed{Sandboxes: up, Containers: []status.Container{in(end, "a", "s", 1),
			in(run, "b", "s", 0)}}, start: []string{"a"}},
		"one crashed, never": {policy: corev1.RestartPolicyNever, seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "a", "s", 1), in(run, "b", "s", 0)}}},
		"one done, on failure": {policy: corev1.RestartPolicyOnFailure, seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "a", "s", 0), in(end, "b", "s", 1)}}, start: []string{"b"}},
		"made, not started": {seen: status.Observed{Sandboxes: up, Containers: []status.Container{in(status.Created, "a",
			"s", 0), in(run, "b", "s", 0)}}, start: []string{"a"}},
		"sandbox died": {seen: status.Observed{Sandboxes: down, Containers: []status.Container{in(end, "a", "s", 137),
			in(end, "b", "s", 137)}}, start: []string{"a", "b"}, sandbox: true, attempt: 4},
		"sandbox died, never": {policy: corev1.RestartPolicyNever, seen: status.Observed{Sandboxes: down,
			Containers: []status.Container{in(end, "a", "s", 137), in(end, "b", "s", 137)}}},
		"sandbox died, one done": {policy: corev1.RestartPolicyOnFailure, seen: status.Observed{Sandboxes: down,
			Containers: []status.Container{in(end, "a", "s", 0), in(end, "b", "s", 137)}}, start: []string{"b"}, sandbox: true,
			attempt: 4},
		"liveness": {seen: status.Observed{Sandboxes: up, Containers: []status.Container{in(run, "a", "s", 0),
			in(run, "b", "s", 0)}}, failed: "a@s", kill: []string{"a"}},
		"lost": {seen: status.Observed{Sandboxes: up, Containers: []status.Container{in(status.Unknown, "a",
			"s", 0), in(run, "b", "s", 0)}}, kill: []string{"a"}},
		"init runs": {init: containers("i"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(run, "i", "s", 0)}}},
		"second init": {init: containers("i", "j"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "i", "s", 0)}}, start: []string{"j"}},
		"init done": {init: containers("i"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "i", "s", 0)}}, start: []string{"a", "b"}},
		"init failed": {init: containers("i"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "i", "s", 1)}}, start: []string{"i"}},
		"init failed, never": {policy: corev1.RestartPolicyNever, init: containers("i"),
			seen: status.Observed{Sandboxes: up, Containers: []status.Container{in(end, "i", "s", 1)}}},
		"init of old sandbox": {init: containers("i"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "i", "old", 0), in(end, "a", "old", 1), in(end, "b", "old", 1)}},
			start: []string{"i"}},
		"init collected": {init: containers("i"), seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(run, "a", "s", 0), in(run, "b", "s", 0)}}},
		"sidecar starts": {init: []corev1.Container{side}, seen: status.Observed{Sandboxes: up}, start: []string{"side"}},
		"sidecar not started": {init: []corev1.Container{side}, seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(run, "side", "s", 0)}}, starter: true},
		"sidecar started": {init: []corev1.Container{side}, seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(run, "side", "s", 0)}}, start: []string{"a", "b"}},
		"sidecar crashed": {init: []corev1.Container{side}, seen: status.Observed{Sandboxes: up,
			Containers: []status.Container{in(end, "side", "s", 0), in(run, "a", "s", 0), in(run, "b", "s", 0)}},
			start: []string{"side"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{
				Spec: corev1.PodSpec{Containers: containers("a", "b"), InitContainers: c.init, RestartPolicy: c.policy},
			}
			if c.policy == "" {
				pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			}
			got := plan.For(plan.Input{
				Pod: pod, Observed: &c.seen, Started: func(string) bool { return !c.starter },
				Failed: func(id string) (string, bool) { return "liveness", id == c.failed },
			})
			var start, kill []string
			for _, s := range got.Start {
				start = append(start, s.Name)
			}
			for _, k := range got.Kill {
				kill = append(kill, k.Container.Name)
			}
			if !slices.Equal(start, c.start) || !slices.Equal(kill, c.kill) || got.NewSandbox != c.sandbox ||
				got.Attempt != c.attempt {
				t.Errorf("start %v kill %v sandbox %v attempt %d", start, kill, got.NewSandbox, got.Attempt)
			}
		})
	}
}

func TestChangedImageRestarts(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "web:1"}}}}
	c := in(status.Running, "a", "s", 0)
	c.Hash = spec.Hash(&pod.Spec.Containers[0])
	seen := &status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: true}}, Containers: []status.Container{c}}
	input := plan.Input{
		Pod:      pod,
		Observed: seen,
		Started:  func(string) bool { return true },
		Failed:   func(string) (string, bool) { return "", false },
	}
	if p := plan.For(input); len(p.Kill) != 0 {
		t.Errorf("plan for an unchanged container: %+v", p)
	}
	pod.Spec.Containers[0].Image = "web:2"
	if p := plan.For(input); len(p.Kill) != 1 || p.Kill[0].Message != "Container a definition changed, will be restarted" {
		t.Errorf("plan for a changed image: %+v", p)
	}
}

func TestRestartAll(t *testing.T) {
	t.Parallel()
	const run, end = status.Running, status.Exited
	rule := []corev1.ContainerRestartRule{
		{
			Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
				Values:   []int32{7},
			},
		},
		{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn,
				Values:   []int32{0},
			},
		},
	}
	for name, c := range map[string]struct {
		seen    []status.Container
		trigger string // empty: none
		kill    []string
		dead    bool // the sandbox is not ready
	}{
		"all run":         {seen: []status.Container{in(end, "i", "s", 0), in(run, "a", "s", 0), in(run, "t", "s", 0)}},
		"exit code 0":     {seen: []status.Container{in(end, "i", "s", 0), in(run, "a", "s", 0), in(end, "t", "s", 0)}},
		"an earlier rule": {seen: []status.Container{in(end, "i", "s", 0), in(run, "a", "s", 0), in(end, "t", "s", 7)}},
		"others run": {seen: []status.Container{in(run, "i", "s", 0), in(run, "a", "s", 0), in(run, "e", "s", 0),
			in(end, "t", "s", 3)}, trigger: "t", kill: []string{"i", "a"}},
		"nothing runs": {seen: []status.Container{in(end, "i", "s", 0), in(end, "a", "s", 137), in(end, "t", "s", 3)},
			trigger: "t"},
		"others removed": {seen: []status.Container{in(end, "t", "s", 3)}, trigger: "t"},
		"its sandbox died": {seen: []status.Container{in(run, "a", "s", 0), in(end, "t", "s", 3)}, trigger: "t",
			kill: []string{"a"}, dead: true},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, InitContainers: containers("i"), Containers: containers("a", "t"),
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}},
			},
		}}
		pod.Spec.Containers[1].RestartPolicyRules = rule
		seen := status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: !c.dead}}, Containers: c.seen}
		p := plan.For(
			plan.Input{
				Pod:      pod,
				Observed: &seen,
				Started:  func(string) bool { return true },
				Failed:   func(string) (string, bool) { return "", false },
			},
		)
		var kill []string
		for _, k := range p.Kill {
			kill = append(kill, k.Container.Name)
		}
		got := ""
		if p.RestartAll != nil {
			got = p.RestartAll.Name
		}
		if got != c.trigger || c.trigger != "" && (!slices.Equal(kill, c.kill) || p.NewSandbox || p.Start != nil) {
			t.Errorf("%s: trigger %q, kill %v, plan %+v", name, got, kill, p)
		}
	}
}
