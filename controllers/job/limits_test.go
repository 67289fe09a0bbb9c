package job

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func perIndex(limit int32) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.BackoffLimitPerIndex = &limit }
}

func onCondition(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
}

// TestPodFailurePolicy tests the effect of a failed pod on its Job for each action of a podFailurePolicy.
func TestPodFailurePolicy(t *testing.T) {
	const in = batchv1.PodFailurePolicyOnExitCodesOpIn
	for name, c := range map[string]struct {
		change []func(*batchv1.Job)
		want   string // 10 s after the first pod has failed with exit code 7
	}{
		"no policy": {[]func(*batchv1.Job){limited(0)},
			"0 active, 0+1, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded"},
		"Count": {[]func(*batchv1.Job){limited(1),
			ruled(onExit(batchv1.PodFailurePolicyActionCount, in, 7))}, "1 active, 0+1"},
		"Count to the limit": {[]func(*batchv1.Job){limited(0), ruled(onExit(batchv1.PodFailurePolicyActionCount, in,
			7))}, "0 active, 0+1, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded"},
		"Count before FailJob": {[]func(*batchv1.Job){limited(1), ruled(onExit(batchv1.PodFailurePolicyActionCount, in,
			7), onExit(batchv1.PodFailurePolicyActionFailJob, in, 7))}, "1 active, 0+1"},
		"Ignore": {[]func(*batchv1.Job){limited(0), ruled(onExit(batchv1.PodFailurePolicyActionIgnore, in,
			7))}, "1 active, 0+0"},
		"FailJob": {[]func(*batchv1.Job){limited(5), ruled(onExit(batchv1.PodFailurePolicyActionFailJob,
			in, 7))}, "0 active, 0+1, FailureTarget PodFailurePolicy, Failed PodFailurePolicy"},
		"no rule matches": {[]func(*batchv1.Job){limited(1), ruled(onExit(batchv1.PodFailurePolicyActionFailJob,
			in, 8))}, "1 active, 0+1"},
		"FailIndex": {[]func(*batchv1.Job){sized(2, 2), withIndexes, perIndex(5),
			ruled(onExit(batchv1.PodFailurePolicyActionFailIndex, in, 7))}, "1 active, 0+1, lost 0"},
		"FailIndex of the last": {[]func(*batchv1.Job){sized(1, 1), withIndexes, perIndex(5),
			ruled(onExit(batchv1.PodFailurePolicyActionFailIndex, in, 7))},
			"0 active, 0+1, lost 0, FailureTarget FailedIndexes, Failed FailedIndexes"},
		"FailIndex beyond the limit": {[]func(*batchv1.Job){sized(3, 3), withIndexes, perIndex(5),
			func(job *batchv1.Job) { job.Spec.MaxFailedIndexes = new(int32(0)) },
			ruled(onExit(batchv1.PodFailurePolicyActionFailIndex, in, 7))},
			"0 active, 0+3, lost 0, FailureTarget MaxFailedIndexesExceeded, Failed MaxFailedIndexesExceeded"},
		"Ignore, per index": {[]func(*batchv1.Job){sized(1, 1), withIndexes, perIndex(0),
			ruled(onExit(batchv1.PodFailurePolicyActionIgnore, in, 7))}, "1 active, 0+0"},
		"FailJob, per index": {[]func(*batchv1.Job){sized(2, 2), withIndexes, perIndex(5),
			ruled(onExit(batchv1.PodFailurePolicyActionFailJob, in, 7))},
			"0 active, 0+2, FailureTarget PodFailurePolicy, Failed PodFailurePolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.create(c.change...)
				cl.end(-1, corev1.PodFailed, exiting(7))
				apitest.Settle(10 * time.Second)
				cl.want("failed", c.want)
			})
		})
	}
}

// A podFailurePolicy can ignore an evicted pod regardless of its exit codes. With a policy the pod is replaced only
// after it has ended.
func TestDisruptedPod(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(limited(0), ruled(onCondition(batchv1.PodFailurePolicyActionIgnore)))
		c.bind()
		evicted := c.running()[0]
		apitest.Change(c.API, evicted, "status", func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
				Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
		})
		c.API.Delete(evicted, "")
		apitest.Settle(time.Minute)
		c.want("the evicted pod terminates", "0 active, 1 terminating, 0+0")
		apitest.Change(c.API, evicted, "status", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(143)}
		})
		c.gone()
		apitest.Settle(10 * time.Second)
		c.want("replaced, not counted", "1 active, 0+0")
	})
}

// A new pod of an index inherits the numbers of counted and ignored failures. The backoff of the index grows with each
// failure and does not delay other indexes.
func TestIndexesInheritFailures(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2), withIndexes, perIndex(9), ruled(onExit(batchv1.PodFailurePolicyActionIgnore,
			batchv1.PodFailurePolicyOnExitCodesOpIn, 7)))
		for i, step := range []struct {
			code             int32
			counted, ignored string
		}{{1, "1", ""}, {7, "1", "1"}, {1, "2", "1"}, {7, "2", "2"}} {
			c.end(0, corev1.PodFailed, exiting(step.code))
			apitest.Settle(10*time.Second<<i - 3*time.Second)
			if n := len(c.running()); n != 1 {
				t.Fatalf("attempt %d: %d pods run before the end of the backoff", i+2, n)
			}
			apitest.Settle(3 * time.Second)
			if len(c.running()) != 2 {
				t.Fatalf("attempt %d is missing: %s", i+2, c.state())
			}
			a := c.running()[0].Annotations
			if a[batchv1.JobIndexFailureCountAnnotation] != step.counted ||
				a[batchv1.JobIndexIgnoredFailureCountAnnotation] != step.ignored {
				t.Errorf("attempt %d: annotations %v", i+2, a)
			}
		}
		c.want("index 1 has not waited", "2 active, 0+2")
	})
}

// With backoffLimitPerIndex, the default of backoffLimit is MaxInt32.
func TestPerIndexHasNoCommonLimit(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(9, 9), withIndexes, perIndex(0))
		if got := *c.job().Spec.BackoffLimit; got != 1<<31-1 {
			t.Errorf("backoffLimit %d", got)
		}
		for i := range int32(8) {
			c.end(i, corev1.PodFailed)
		}
		c.want("eight of nine", "1 active, 0+8, lost 0-7")
		c.end(8, corev1.PodSucceeded)
		c.want("all", "0 active, 1+8, done 8, lost 0-7, FailureTarget FailedIndexes, Failed FailedIndexes")
	})
}

// One satisfied rule of successPolicy completes the Job, even if other indexes have failed.
func TestSuccessPolicies(t *testing.T) {
	rule := func(indexes *string, count *int32) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: indexes,
				SucceededCount: count}}}
		}
	}
	for name, c := range map[string]struct {
		change []func(*batchv1.Job)
		want   string // after index 0 has failed, and indexes 1 and 3 have succeeded
	}{
		"count": {[]func(*batchv1.Job){rule(nil, new(int32(2)))},
			"0 active, 2+1, done 1,3, lost 0, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		"indexes": {[]func(*batchv1.Job){rule(new("1,3"), nil)},
			"0 active, 2+1, done 1,3, lost 0, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		"count among indexes": {[]func(*batchv1.Job){rule(new("2-4"), new(int32(1)))},
			"0 active, 2+1, done 1,3, lost 0, SuccessCriteriaMet SuccessPolicy, Complete SuccessPolicy"},
		"too few":      {[]func(*batchv1.Job){rule(nil, new(int32(3)))}, "2 active, 2+1, done 1,3, lost 0"},
		"failed index": {[]func(*batchv1.Job){rule(new("0,1"), nil)}, "2 active, 2+1, done 1,3, lost 0"},
		"maxFailedIndexes": {[]func(*batchv1.Job){rule(nil, new(int32(1))),
			func(job *batchv1.Job) { job.Spec.MaxFailedIndexes = new(int32(0)) }},
			"0 active, 0+5, lost 0, FailureTarget MaxFailedIndexesExceeded, Failed MaxFailedIndexesExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.create(append(c.change, sized(5, 5), withIndexes, perIndex(0))...)
				for i, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded, "", corev1.PodSucceeded} {
					if phase != "" && len(cl.running()) > 0 {
						cl.end(int32(i), phase)
					}
				}
				cl.want("at last", c.want)
				if !finished(cl.job()) {
					return
				}
				cl.untracked()
				if met := isTrue(cl.job(), batchv1.JobSuccessCriteriaMet); met != nil && met.Message != "Matched rules at index 0" {
					t.Errorf("message %q", met.Message)
				}
			})
		})
	}
}

// Changes of activeDeadlineSeconds and backoffLimit of a running Job take effect at once.
func TestLimitsChange(t *testing.T) {
	for name, c := range map[string]struct {
		create []func(*batchv1.Job)
		change func(*batchv1.Job)
		want   string // 20 s after the start, with a failed pod
	}{
		"shorter deadline": {nil, func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(5)) },
			"0 active, 0+1, FailureTarget DeadlineExceeded, Failed DeadlineExceeded"},
		"longer deadline": {[]func(*batchv1.Job){func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(15)) }},
			func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(60)) }, "1 active, 0+1"},
		"endless": {nil, func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(1 << 40)) },
			"1 active, 0+1"},
		"lower limit": {nil, limited(0), "0 active, 0+1, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.create(c.create...)
				cl.end(-1, corev1.PodFailed)
				cl.change(c.change)
				apitest.Settle(17 * time.Second)
				cl.want("changed", c.want)
			})
		})
	}
}

// A Job with 0 completions is complete at once.
func TestNothingToDo(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(0, 1))
		c.want("no completions", "0 active, 0+0"+complete)
		if s := c.job().Status; s.CompletionTime == nil || s.StartTime == nil || len(c.pods()) != 0 {
			t.Errorf("status %+v, %d pods", s, len(c.pods()))
		}
	})
}

func TestNoParallelism(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 0))
		c.want("parallelism 0", "0 active, 0+0")
		c.change(sized(2, 2))
		c.want("parallelism 2", "2 active, 0+0")
	})
}

// The condition Suspended has reason, message and times, also after each resume.
func TestSuspendedCondition(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(suspend(true))
		want := func(what string, status corev1.ConditionStatus, reason, message string) {
			t.Helper()
			for _, cond := range c.job().Status.Conditions {
				if cond.Type == batchv1.JobSuspended {
					if cond.Status != status || cond.Reason != reason || cond.Message != message || cond.LastTransitionTime.IsZero() ||
						cond.LastProbeTime.IsZero() {
						t.Errorf("%s: %+v", what, cond)
					}
					return
				}
			}
			t.Errorf("%s: no condition", what)
		}
		want("created", corev1.ConditionTrue, "JobSuspended", "Job suspended")
		c.change(suspend(false))
		want("resumed", corev1.ConditionFalse, "JobResumed", "Job resumed")
		c.change(suspend(true))
		want("again", corev1.ConditionTrue, "JobSuspended", "Job suspended")
	})
}

func TestNeverSuspendedHasNoCondition(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(suspend(false))
		if got := c.job().Status.Conditions; len(got) != 0 {
			t.Errorf("conditions %+v", got)
		}
	})
}

// The controller ignores changes of a finished Job, and the deletion of its pods.
func TestFinishedJobIsLeftAlone(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2))
		c.end(-1, corev1.PodSucceeded)
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 2+0"+complete)
		c.change(func(job *batchv1.Job) { job.Spec.Parallelism, job.Spec.Suspend = new(int32(9)), new(true) })
		for _, p := range c.pods() {
			c.API.Delete(p, "")
		}
		apitest.Settle(time.Minute)
		c.want("later", "0 active, 2+0"+complete)
		if n := len(c.pods()); n != 0 {
			t.Errorf("%d pods", n)
		}
	})
}

// The name of this controller in managedBy has the same effect as an empty managedBy.
func TestManagedByThisController(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(func(job *batchv1.Job) { job.Spec.ManagedBy = new(batchv1.JobControllerName) })
		c.want("it runs", "1 active, 0+0")
	})
}

// If more pods succeed than completions, which can happen after an adoption, an Event reports it.
func TestTooManySucceededPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		labels := map[string]string{"app": "task"}
		for i := range 2 {
			orphan := apitest.Pod("default", fmt.Sprint("orphan-", i), func(p *corev1.Pod) {
				p.Labels,
					p.Spec.RestartPolicy = labels, corev1.RestartPolicyNever
			})
			c.Create(orphan)
			apitest.Change(c.API, orphan, "status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}
		apitest.Settle(time.Second)
		c.create(sized(1, 1), func(job *batchv1.Job) {
			job.Spec.ManualSelector = new(true)
			job.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
			job.Spec.Template.Labels = labels
		})
		c.want("done", "0 active, 2+0"+complete)
		if got := c.Events.Count(); got["TooManySucceededPods"] != 1 || got["Completed"] != 1 {
			t.Errorf("events %v", got)
		}
	})
}

// A new Job does not count the pods of a deleted Job of the same name.
func TestOrphanedPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2))
		c.bind()
		before := c.pods()
		c.API.Delete(c.job(), metav1.DeletePropagationBackground)
		apitest.Settle(time.Second)
		c.create(sized(2, 2))
		c.bind()
		for _, p := range before {
			c.Phase(p, corev1.PodSucceeded, false)
		}
		apitest.Settle(time.Second)
		c.want("the next Job", "2 active, 2 ready, 0+0")
		if n := len(c.pods()); n != 4 {
			t.Errorf("%d pods", n)
		}
	})
}
