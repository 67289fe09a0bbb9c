package status_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/podapi/status"
)

func TestRestarts(t *testing.T) {
	t.Parallel()
	const (
		always, failure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
		in, notIn              = corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	rule := func(op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes},
		}}
	}
	for name, c := range map[string]struct {
		pod   corev1.RestartPolicy
		own   corev1.ContainerRestartPolicy // "": none
		rules []corev1.ContainerRestartRule
		code  int32
		want  bool
	}{
		"always":                {always, "", nil, 0, true},
		"on failure, well":      {failure, "", nil, 0, false},
		"on failure, badly":     {failure, "", nil, 3, true},
		"never":                 {never, "", nil, 3, false},
		"own policy wins":       {always, "Never", nil, 3, false},
		"own always":            {never, "Always", nil, 0, true},
		"own on failure, well":  {always, "OnFailure", nil, 0, false},
		"own on failure, badly": {never, "OnFailure", nil, 1, true},
		"rule fits":             {never, "Never", rule(in, 41, 42), 42, true},
		"rule does not fit":     {never, "Never", rule(in, 41, 42), 43, false},
		"rule of others fits":   {never, "Never", rule(notIn, 42), 43, true},
		"rule of others, named": {always, "Never", rule(notIn, 42), 42, false},
		"policy after rules":    {always, "OnFailure", rule(in, 42), 1, true},
		"second rule fits":      {never, "Never", append(rule(in, 1), rule(in, 2)...), 2, true},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.pod}}
		container := &corev1.Container{RestartPolicyRules: c.rules}
		if c.own != "" {
			container.RestartPolicy = &c.own
		}
		if got := status.Restarts(pod, container, c.code); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRestartingAll: while all containers restart none of their exits is final, whatever the pod's policy.
func TestRestartingAll(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "a"}, {Name: "t", RestartPolicyRules: []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
				Values: []int32{3}},
		}}}},
	}}
	one := func(name string, state status.State, code int32) status.Container {
		return status.Container{ID: name, Name: name, State: state, ExitCode: code, SandboxID: "s"}
	}
	for _, c := range []struct {
		name       string
		containers []status.Container
		terminal   bool
		phase      corev1.PodPhase
		restarting corev1.ConditionStatus
		reason     string
	}{
		{"all run", []status.Container{one("a", status.Running, 0), one("t", status.Running, 0)}, false, corev1.PodRunning,
			corev1.ConditionFalse, ""},
		{"the trigger ended", []status.Container{one("a", status.Running, 0), one("t", status.Exited, 3)}, false,
			corev1.PodRunning, corev1.ConditionTrue, "RestartAllContainersStarted"},
		{"all ended", []status.Container{one("a", status.Exited, 137), one("t", status.Exited, 3)}, false, corev1.PodRunning,
			corev1.ConditionTrue, "RestartAllContainersStarted"},
		{"others removed", []status.Container{one("t", status.Exited, 3)}, false, corev1.PodRunning, corev1.ConditionTrue,
			"RestartAllContainersStarted"},
		{"all removed", nil, false, corev1.PodPending, corev1.ConditionFalse, ""},
		{"all run again", []status.Container{one("a", status.Running, 0), one("t", status.Running, 0)}, false,
			corev1.PodRunning, corev1.ConditionFalse, ""},
		{"done", []status.Container{one("a", status.Exited, 0), one("t", status.Exited, 0)}, false, corev1.PodSucceeded,
			corev1.ConditionFalse, "PodCompleted"},
		{"deleted in between", []status.Container{one("a", status.Exited, 137), one("t", status.Exited, 3)}, true,
			corev1.PodFailed, corev1.ConditionFalse, "PodFailed"},
	} {
		pod.Status = status.Of(status.Input{
			Pod: pod, Observed: &status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: true}}, Containers: c.containers},
			Terminal: c.terminal,
		})
		got := status.Condition(pod.Status.Conditions, corev1.AllContainersRestarting)
		if pod.Status.Phase != c.phase || got == nil || got.Status != c.restarting || got.Reason != c.reason {
			t.Errorf("%s: %s, %+v", c.name, pod.Status.Phase, got)
		}
		pod.Status.Phase = "" // a final one would stay
	}
}
