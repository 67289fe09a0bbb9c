package job

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/batch"
	"monopod/controllers/internal/apitest"
)

func ruled(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}

func onExit(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator,
	codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: op, Values: codes}}
}

func exiting(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(code)} }
}

func TestMatchFailure(t *testing.T) {
	t.Parallel()
	disrupted := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionIgnore,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
	rules := []batchv1.PodFailurePolicyRule{
		disrupted,
		onExit(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 3, 4),
		onExit(batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpNotIn, 1, 2),
		onExit(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 2),
	}
	rules[3].OnExitCodes.ContainerName = new("side")
	side := func(code int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			s := exitedWith(code)
			s.Name = "side"
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		action  batchv1.PodFailurePolicyAction
		message string
	}{
		"no match":     {exiting(1), "", ""},
		"no exit code": {func(*corev1.Pod) {}, "", ""},
		"success":      {exiting(0), "", ""},
		"in": {exiting(3), batchv1.PodFailurePolicyActionFailJob,
			"Container c for pod default/p failed with exit code 3 matching FailJob rule at index 1"},
		"not in": {exiting(9), batchv1.PodFailurePolicyActionIgnore, ""},
		"a condition, and the first rule decides": {func(p *corev1.Pod) {
			exiting(3)(p)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}, batchv1.PodFailurePolicyActionIgnore, ""},
		"an init container": {func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{exitedWith(4)}
		}, batchv1.PodFailurePolicyActionFailJob,
			"Container c for pod default/p failed with exit code 4 matching FailJob rule at index 1"},
		"the named container": {side(2), batchv1.PodFailurePolicyActionFailJob,
			"Container side for pod default/p failed with exit code 2 matching FailJob rule at index 3"},
		"a container of another name": {exiting(2), "", ""},
		"the named container after another": {func(p *corev1.Pod) { exiting(2)(p); side(2)(p) },
			batchv1.PodFailurePolicyActionFailJob, "Container side for pod default/p failed with exit code 2 matching " +
				"FailJob rule at index 3"},
		"the named container succeeded": {func(p *corev1.Pod) { exiting(2)(p); side(0)(p) }, "", ""},
		"a condition with status False": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}}
		}, "", ""},
	} {
		st := &syncState{job: task(ruled(rules...))}
		if message, action := st.matchFailure(apitest.Pod("default", "p", c.change)); message != c.message ||
			action != c.action {
			t.Errorf("%s: %s %q, want %s %q", name, action, message, c.action, c.message)
		}
	}
}

func TestSuccessMessage(t *testing.T) {
	t.Parallel()
	list := func(rules ...batchv1.SuccessPolicyRule) *batchv1.SuccessPolicy {
		return &batchv1.SuccessPolicy{Rules: rules}
	}
	for name, c := range map[string]struct {
		policy *batchv1.SuccessPolicy
		done   []int32
		want   string
	}{
		"no policy": {nil, []int32{1}, ""},
		"count": {list(batchv1.SuccessPolicyRule{SucceededCount: new(int32(2))}), []int32{1, 5},
			"Matched rules at index 0"},
		"count is not reached": {list(batchv1.SuccessPolicyRule{SucceededCount: new(int32(3))}), []int32{1, 5}, ""},
		"indexes": {list(batchv1.SuccessPolicyRule{SucceededIndexes: new("1,2,5")}), []int32{0, 1, 2, 5},
			"Matched rules at index 0"},
		"an index is missing": {list(batchv1.SuccessPolicyRule{SucceededIndexes: new("1-5")}), []int32{1, 2, 3, 5}, ""},
		"enough of the indexes": {list(batchv1.SuccessPolicyRule{SucceededIndexes: new("1-5"),
			SucceededCount: new(int32(2))}), []int32{0, 2, 5}, "Matched rules at index 0"},
		"the second rule": {list(batchv1.SuccessPolicyRule{SucceededIndexes: new("9")},
			batchv1.SuccessPolicyRule{SucceededCount: new(int32(1))}), []int32{0}, "Matched rules at index 1"},
	} {
		if got := successMessage(c.policy, batch.IndexesOf(c.done...)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestFailJobAndIgnore(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(limited(0), ruled(onExit(batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyOnExitCodesOpIn, 7),
			onExit(batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyOnExitCodesOpIn, 8)))
		c.end(-1, corev1.PodFailed, exiting(7))
		apitest.Settle(10 * time.Second)
		c.want("ignored", "1 active, 0+0")
		c.end(-1, corev1.PodFailed, exiting(8))
		c.want("failed", "0 active, 0+1, FailureTarget PodFailurePolicy, Failed PodFailurePolicy")
		c.untracked()
	})
}

// Each index has its own backoff and its own limit.
func TestBackoffPerIndex(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), withIndexes, func(job *batchv1.Job) { job.Spec.BackoffLimitPerIndex = new(int32(1)) })
		c.end(0, corev1.PodFailed)
		c.end(1, corev1.PodSucceeded)
		c.want("waits; the failed pod is not counted before it is replaced", "1 active, 1+0, done 1")
		apitest.Settle(10 * time.Second)
		c.want("tried again", "2 active, 1+1, done 1")
		if got := c.running()[0].Annotations[batchv1.JobIndexFailureCountAnnotation]; got != "1" {
			t.Errorf("failure count %q", got)
		}
		c.end(0, corev1.PodFailed)
		c.want("the index has failed, the others continue", "1 active, 1+2, done 1, lost 0")
		c.end(2, corev1.PodSucceeded)
		c.want("failed", "0 active, 2+2, done 1,2, lost 0, FailureTarget FailedIndexes, Failed FailedIndexes")
		c.untracked()
	})
}

func TestMaxFailedIndexes(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(4, 4), withIndexes, func(job *batchv1.Job) {
			job.Spec.BackoffLimitPerIndex, job.Spec.MaxFailedIndexes = new(int32(0)), new(int32(1))
		})
		c.end(0, corev1.PodFailed)
		c.want("one index has failed", "3 active, 0+1, lost 0")
		c.end(2, corev1.PodFailed)
		c.want("two indexes have failed", "0 active, 0+4, lost 0,2, FailureTarget MaxFailedIndexesExceeded, "+
			"Failed MaxFailedIndexesExceeded")
	})
}

func TestSuccessPolicy(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), withIndexes, func(job *batchv1.Job) {
			job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}}
		})
		c.bind()
		c.end(0, corev1.PodSucceeded)
		c.want("criteria met, the other pods end", "0 active, 2 terminating, 1+0, done 0, SuccessCriteriaMet SuccessPolicy")
		c.gone()
		c.want("complete", "0 active, 1+0, done 0, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy")
		c.untracked()
	})
}
