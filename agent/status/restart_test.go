package status_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/status"
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
