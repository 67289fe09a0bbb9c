package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Restarts says whether a container of the pod that ended with the code is to
// start again: the first of its own rules that fits, else its own policy, else the
// pod's.
func Restarts(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	for i := range c.RestartPolicyRules {
		if r := &c.RestartPolicyRules[i]; r.Action == corev1.ContainerRestartRuleActionRestart && fits(r.ExitCodes, code) {
			return true
		}
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

func fits(codes *corev1.ContainerRestartRuleOnExitCodes, code int32) bool {
	if codes == nil {
		return false
	}
	in := slices.Contains(codes.Values, code)
	return in == (codes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}
