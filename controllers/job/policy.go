package job

import (
	"fmt"
	"math"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/batch"
)

// matchFailure returns the action of the first rule of podFailurePolicy that a failed pod matches (empty if none does)
// and, for FailJob, the message of the Job's condition.
func (st *syncState) matchFailure(pod *corev1.Pod) (message string, action batchv1.PodFailurePolicyAction) {
	policy := st.job.Spec.PodFailurePolicy
	if policy == nil {
		return "", ""
	}
	for i, rule := range policy.Rules {
		why := ""
		if rule.OnExitCodes != nil {
			if s := exited(&pod.Status, rule.OnExitCodes); s != nil {
				why = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", s.Name, pod.Namespace, pod.Name,
					s.State.Terminated.ExitCode)
			}
		} else if c := matched(&pod.Status, rule.OnPodConditions); c != nil {
			why = fmt.Sprintf("Pod %s/%s has condition %s", pod.Namespace, pod.Name, c.Type)
		}
		switch {
		case why == "":
		case rule.Action == batchv1.PodFailurePolicyActionFailJob:
			return fmt.Sprintf("%s matching %s rule at index %d", why, rule.Action, i), rule.Action
		default:
			return "", rule.Action
		}
	}
	return "", ""
}

// exited returns the first container whose exit code matches the rule. Regular containers come before init containers;
// exit code 0 never matches.
func exited(status *corev1.PodStatus, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, s := range slices.Concat(status.ContainerStatuses, status.InitContainerStatuses) {
		end := s.State.Terminated
		if end == nil || end.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != s.Name {
			continue
		}
		if slices.Contains(rule.Values, end.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return &s
		}
	}
	return nil
}

// matched returns the first condition of the pod that matches a pattern.
func matched(status *corev1.PodStatus, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for _, c := range status.Conditions {
		for _, p := range patterns {
			if c.Type == p.Type && c.Status == p.Status {
				return &c
			}
		}
	}
	return nil
}

// failingPod returns the message about the first failed pod that fails the whole Job.
func (st *syncState) failingPod() string {
	if st.job.Spec.PodFailurePolicy == nil {
		return ""
	}
	for _, p := range st.pods {
		if st.isFailed(p) {
			if message, _ := st.matchFailure(p); message != "" {
				return message
			}
		}
	}
	return ""
}

// isIndexFailed reports whether the pod's failure exceeds backoffLimitPerIndex.
func (st *syncState) isIndexFailed(pod *corev1.Pod) bool {
	if !st.isFailed(pod) {
		return false
	}
	switch _, action := st.matchFailure(pod); action {
	case batchv1.PodFailurePolicyActionFailIndex:
		return true
	case batchv1.PodFailurePolicyActionIgnore:
		return false
	}
	count, _ := number(pod, batchv1.JobIndexFailureCountAnnotation)
	return count >= *st.job.Spec.BackoffLimitPerIndex
}

// replacements returns the failed pods to replace, by index: the last failed pod of each index.
func (st *syncState) replacements() map[int32]*corev1.Pod {
	taken := map[int32]bool{}
	for _, p := range st.active {
		if i, ok := st.index(p); ok {
			taken[i] = true
		}
	}
	last := map[int32]*corev1.Pod{}
	for _, p := range st.pods {
		i, ok := st.index(p)
		if !ok || !tracked(p) || !st.isFailed(p) || taken[i] || st.completedIndexes.Has(i) || st.failedIndexes.Has(i) {
			continue
		}
		if was := last[i]; was == nil || attempts(was) <= attempts(p) && !ended(p).Before(ended(was)) {
			last[i] = p
		}
	}
	return last
}

// attempts returns the number of earlier failures of the pod's index, counted and ignored ones.
func attempts(pod *corev1.Pod) int32 {
	counted, _ := number(pod, batchv1.JobIndexFailureCountAnnotation)
	ignored, _ := number(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
	return counted + ignored
}

// successMessage describes the first rule that the completed indexes satisfy; empty if there is none.
func successMessage(policy *batchv1.SuccessPolicy, done batch.Indexes) string {
	if policy == nil || len(done) == 0 {
		return ""
	}
	for i, rule := range policy.Rules {
		have, met := done.Count(), false
		if rule.SucceededIndexes != nil {
			want, err := batch.ParseIndexes(*rule.SucceededIndexes, math.MaxInt32)
			if err != nil || len(want) == 0 {
				continue
			}
			want = want.Merge(nil)
			have = done.Common(want)
			met = have == want.Count()
		}
		if met || rule.SucceededCount != nil && have >= *rule.SucceededCount {
			return fmt.Sprintf("Matched rules at index %d", i)
		}
	}
	return ""
}
