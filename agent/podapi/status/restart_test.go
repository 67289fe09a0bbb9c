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
		own   corev1.ContainerRestartPolicy // policy of the container; "": none
		rules []corev1.ContainerRestartRule
		code  int32
		want  bool
	}{
		"always":                        {always, "", nil, 0, true},
		"on failure, success":           {failure, "", nil, 0, false},
		"on failure, failure":           {failure, "", nil, 3, true},
		"never":                         {never, "", nil, 3, false},
		"container never":               {always, "Never", nil, 3, false},
		"container always":              {never, "Always", nil, 0, true},
		"container on failure, success": {always, "OnFailure", nil, 0, false},
		"container on failure, failure": {never, "OnFailure", nil, 1, true},
		"rule matches":                  {never, "Never", rule(in, 41, 42), 42, true},
		"rule does not match":           {never, "Never", rule(in, 41, 42), 43, false},
		"NotIn rule matches":            {never, "Never", rule(notIn, 42), 43, true},
		"NotIn rule does not match":     {always, "Never", rule(notIn, 42), 42, false},
		"policy after rules":            {always, "OnFailure", rule(in, 42), 1, true},
		"second rule matches":           {never, "Never", append(rule(in, 1), rule(in, 2)...), 2, true},
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

// TestRestartingAll checks that no exit is final while all containers restart, regardless of the policy of the pod.
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
		{"trigger exited", []status.Container{one("a", status.Running, 0), one("t", status.Exited, 3)}, false,
			corev1.PodRunning, corev1.ConditionTrue, "RestartAllContainersStarted"},
		{"all exited", []status.Container{one("a", status.Exited, 137), one("t", status.Exited, 3)}, false, corev1.PodRunning,
			corev1.ConditionTrue, "RestartAllContainersStarted"},
		{"others removed", []status.Container{one("t", status.Exited, 3)}, false, corev1.PodRunning, corev1.ConditionTrue,
			"RestartAllContainersStarted"},
		{"all removed", nil, false, corev1.PodPending, corev1.ConditionFalse, ""},
		{"all run again", []status.Container{one("a", status.Running, 0), one("t", status.Running, 0)}, false,
			corev1.PodRunning, corev1.ConditionFalse, ""},
		{"done", []status.Container{one("a", status.Exited, 0), one("t", status.Exited, 0)}, false, corev1.PodSucceeded,
			corev1.ConditionFalse, "PodCompleted"},
		{"deleted meanwhile", []status.Container{one("a", status.Exited, 137), one("t", status.Exited, 3)}, true,
			corev1.PodFailed, corev1.ConditionFalse, "PodFailed"},
	} {
		pod.Status = status.Of(status.Input{
			Pod: pod, Observed: &status.Observed{Sandboxes: []status.Sandbox{{ID: "s", Ready: true}}, Containers: c.containers},
			Terminal: c.terminal,
		})
		got := status.Condition(pod.Status.Conditions, corev1.AllContainersRestarting)
		if pod.Status.Phase != c.phase || got == nil || got.Status != c.restarting || got.Reason != c.reason {
			t.Errorf("%s: phase %s, condition %+v", c.name, pod.Status.Phase, got)
		}
		pod.Status.Phase = "" // a final phase would not change
	}
}
