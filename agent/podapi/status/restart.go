package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Restarts reports whether a container that exited with the code restarts: by the first of its rules that
// matches, else its own policy, else the pod's.
func Restarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	if rule(c, code) != nil {
		return true
	}
	policy := corev1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = *c.RestartPolicy
	}
	switch policy {
	case corev1.ContainerRestartPolicyNever:
		return false
	case corev1.ContainerRestartPolicyOnFailure:
		return code != 0
	}
	return true
}

// rule returns the first of the container's rules that matches the exit code; nil: none.
func rule(c *corev1.Container, code int32) *corev1.ContainerRestartRule {
	for i := range c.RestartPolicyRules {
		if r := &c.RestartPolicyRules[i]; fits(r.ExitCodes, code) {
			return r
		}
	}
	return nil
}

// RestartsAll returns the container whose exit restarts all containers of the pod, by one of its rules; nil: none. It
// returns the container until the agent has removed it.
func RestartsAll(pod *corev1.Pod, seen *Observed) *Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := seen.Latest(list[i].Name)
			if c == nil || c.State != Exited {
				continue
			}
			if r := rule(&list[i], c.ExitCode); r != nil && r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return c
			}
		}
	}
	return nil
}

// mayRestartAll reports whether any rule of the pod restarts all containers.
func mayRestartAll(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if slices.ContainsFunc(list[i].RestartPolicyRules, restartsAll) {
				return true
			}
		}
	}
	return false
}

func restartsAll(r corev1.ContainerRestartRule) bool {
	return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
}

func fits(codes *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	return in == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}
