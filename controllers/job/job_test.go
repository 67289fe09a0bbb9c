package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

const complete = ", SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"

func TestOnePod(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create()
		c.want("created", "1 active, 0+0")
		p := c.pods()[0]
		if !tracked(p) || !metav1.IsControlledBy(p, c.job()) || p.Labels[batchv1.JobNameLabel] != "task" ||
			p.Labels[batchv1.ControllerUidLabel] != string(c.job().UID) ||
			!strings.HasPrefix(p.Name, "task-") || len(p.Name) != len("task-12345") ||
			p.Annotations[batchv1.JobCompletionIndexAnnotation] != "" {
			t.Errorf("pod %+v", p.ObjectMeta)
		}
		c.bind()
		c.want("running", "1 active, 1 ready, 0+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 1+0"+complete)
		c.untracked()
		s := c.job().Status
		if s.StartTime == nil || s.CompletionTime == nil || s.CompletionTime.Sub(s.StartTime.Time) != 2*time.Second ||
			len(s.UncountedTerminatedPods.Succeeded) != 0 {
			t.Errorf("status %+v", s)
		}
		if got := s.Conditions[1].Message; got != "Reached expected number of succeeded pods" {
			t.Errorf("message %q", got)
		}
		if got := c.Events.Count(); len(got) != 2 || got["SuccessfulCreate"] != 1 || got["Completed"] != 1 {
			t.Errorf("events %v", got)
		}
	})
}

func TestParallelPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 2))
		c.want("created", "2 active, 0+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("one done", "2 active, 1+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("at most what is missing", "1 active, 2+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 3+0"+complete)
		c.untracked()
		if n := len(c.pods()); n != 3 {
			t.Errorf("%d pods", n)
		}
	})
}

// Without completions the Job creates no more pods after the first success, and is complete when the others have ended.
func TestWorkQueue(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(3)) })
		c.want("created", "3 active, 0+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("no replacement of the succeeded pod", "2 active, 1+0")
		c.end(-1, corev1.PodFailed)
		c.want("no replacement of the failed pod", "1 active, 1+1")
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 2+1"+complete)
	})
}

func TestParallelismChanges(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(10, 2))
		c.change(func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(5)) })
		c.want("more", "5 active, 0+0")
		c.change(func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(1)) })
		c.want("fewer: deleted pods do not count as failed", "1 active, 0+0")
		c.change(func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(0)) })
		c.want("none", "0 active, 0+0")
		if n := len(c.pods()); n != 0 {
			t.Errorf("%d pods", n)
		}
	})
}

// The controller replaces failed pods after 10 s, then 20 s. One failure more than backoffLimit ends the Job.
func TestBackoff(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(limited(2))
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
			c.end(-1, corev1.PodFailed)
			c.want("waits", fmt.Sprintf("0 active, 0+%d", i+1))
			apitest.Settle(wait - 3*time.Second)
			c.want("still waits", fmt.Sprintf("0 active, 0+%d", i+1))
			apitest.Settle(3 * time.Second)
			c.want("tries again", fmt.Sprintf("1 active, 0+%d", i+1))
		}
		c.end(-1, corev1.PodFailed)
		c.want("failed", "0 active, 0+3, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded")
		c.untracked()
		if got := c.Events.Count(); got["BackoffLimitExceeded"] != 1 || got["SuccessfulCreate"] != 3 {
			t.Errorf("events %v", got)
		}
		if c.job().Status.CompletionTime != nil {
			t.Error("a failed Job has a completionTime")
		}
	})
}

// When a Job fails, its active pods are deleted and counted as failed. The Job waits until they have ended.
func TestFailureDeletesActivePods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), limited(0))
		c.bind()
		c.end(-1, corev1.PodFailed)
		c.want("target", "0 active, 2 terminating, 0+3, FailureTarget BackoffLimitExceeded")
		c.gone()
		c.want("failed", "0 active, 0+3, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded")
	})
}

// With restartPolicy OnFailure, restarts of containers count towards backoffLimit.
func TestRestartsInPlace(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(limited(2), func(job *batchv1.Job) { job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
		restart := func(n int32) {
			apitest.Change(c.API, c.running()[0], "status", func(p *corev1.Pod) {
				p.Status.Phase = corev1.PodRunning
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: "image", RestartCount: n}}
			})
			apitest.Settle(time.Second)
		}
		restart(1)
		c.want("once", "1 active, 0+0")
		restart(2)
		c.want("twice", "0 active, 0+1, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded")
	})
}

func TestDeadline(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(5, 2), func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(60)) })
		apitest.Settle(58 * time.Second)
		c.want("in time", "2 active, 0+0")
		apitest.Settle(time.Second)
		c.want("late", "0 active, 0+2, FailureTarget DeadlineExceeded, Failed DeadlineExceeded")
	})
}

// Time in which the machine is suspended counts towards activeDeadlineSeconds.
func TestDeadlineAsleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		deps := api.Deps()
		clock := api.Settable(&deps)
		api.Run(apitest.Must(New(deps, &api.Events, Config{})))
		c := cluster{api, t}
		c.create(func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(600)) })
		clock.Set(590 * time.Second)
		c.want("awake too early", "1 active, 0+0")
		clock.Set(10 * time.Second)
		c.want("awake too late", "0 active, 0+1, FailureTarget DeadlineExceeded, Failed DeadlineExceeded")
	})
}

func TestSuspend(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 2), suspend(true), func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(60)) })
		c.want("created", "0 active, 0+0, Suspended JobSuspended")
		if c.job().Status.StartTime != nil {
			t.Error("a suspended Job has a startTime")
		}
		apitest.Settle(time.Hour)
		c.change(suspend(false))
		c.want("resumed", "2 active, 0+0")
		first := c.job().Status.StartTime
		c.bind()
		c.end(-1, corev1.PodSucceeded)
		c.change(suspend(true))
		c.want("suspended again", "0 active, 1 terminating, 1+0, Suspended JobSuspended")
		c.gone()
		c.want("no failure", "0 active, 1+0, Suspended JobSuspended")
		apitest.Settle(time.Hour)
		c.change(suspend(false))
		c.want("resumed again", "2 active, 1+0")
		if !c.job().Status.StartTime.After(first.Time) {
			t.Error("startTime did not change when the Job was resumed")
		}
		apitest.Settle(time.Minute)
		c.want("deadline since the last start", "0 active, 1+2, FailureTarget DeadlineExceeded, Failed DeadlineExceeded")
		if got := c.Events.Count(); got["Suspended"] != 2 || got["Resumed"] != 2 {
			t.Errorf("events %v", got)
		}
	})
}

func TestIndexed(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(5, 3), withIndexes, func(job *batchv1.Job) {
			job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "image",
				Env: []corev1.EnvVar{{Name: indexEnv, Value: "own"}}}}
		})
		for i, p := range c.pods() {
			n := fmt.Sprint(i)
			env := p.Spec.Containers[0].Env[0]
			if p.Annotations[batchv1.JobCompletionIndexAnnotation] != n || p.Labels[batchv1.JobCompletionIndexAnnotation] != n ||
				p.Spec.Hostname != "task-"+n ||
				!strings.HasPrefix(p.Name, "task-"+n+"-") || env.Name != indexEnv ||
				env.ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" ||
				len(p.Spec.InitContainers[0].Env) != 1 || p.Spec.InitContainers[0].Env[0].Value != "own" {
				t.Errorf("pod %d is %+v %+v", i, p.ObjectMeta, p.Spec)
			}
		}
		c.end(1, corev1.PodSucceeded)
		c.want("the next index", "3 active, 1+0, done 1")
		c.end(0, corev1.PodFailed)
		c.want("waits", "2 active, 1+1, done 1")
		apitest.Settle(10 * time.Second)
		c.want("tried again", "3 active, 1+1, done 1")
		for _, i := range []int32{0, 2, 3, 4} {
			c.end(i, corev1.PodSucceeded)
		}
		c.want("done", "0 active, 5+1, done 0-4"+complete)
		c.untracked()
	})
}

// A second pod of an index, and a pod of an invalid index, are deleted.
func TestWrongIndexes(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2), withIndexes)
		for _, index := range []string{"0", "7", "x"} {
			p := c.pods()[0].DeepCopy()
			p.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "extra-" + index, Labels: p.Labels,
				OwnerReferences: p.OwnerReferences,
				Finalizers:      p.Finalizers, Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: index}}
			c.Create(p)
		}
		apitest.Settle(time.Second)
		c.want("two again", "2 active, 0+0")
		if n := len(c.pods()); n != 2 {
			t.Errorf("%d pods", n)
		}
	})
}

// An elastic Indexed Job grows and shrinks with completions and parallelism.
func TestElastic(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), withIndexes)
		c.end(2, corev1.PodSucceeded)
		c.change(sized(2, 2))
		c.want("index 2 is no longer requested", "2 active, 0+0")
		c.change(sized(4, 4))
		c.want("all again", "4 active, 0+0")
		c.change(sized(1, 1))
		c.end(0, corev1.PodSucceeded)
		c.want("done", "0 active, 1+0, done 0"+complete)
	})
}

// A deleted pod counts as failed and is replaced; with podReplacementPolicy Failed only after it has ended.
func TestDeletedPod(t *testing.T) {
	for name, c := range map[string]struct {
		policy                    batchv1.PodReplacementPolicy
		deleted, replaced, atLast string
	}{
		"TerminatingOrFailed": {batchv1.TerminatingOrFailed, "0 active, 1 terminating, 0+1", "1 active, 1 terminating, 0+1",
			"1 active, 0+1"},
		"Failed": {batchv1.Failed, "0 active, 1 terminating, 0+0", "0 active, 1 terminating, 0+0", "0 active, 0+1"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.create(func(job *batchv1.Job) { job.Spec.PodReplacementPolicy = &c.policy })
				cl.bind()
				cl.API.Delete(cl.pods()[0], "")
				apitest.Settle(time.Second)
				cl.want("deleted", c.deleted)
				apitest.Settle(10 * time.Second)
				cl.want("after the backoff", c.replaced)
				for _, p := range cl.pods() {
					if p.DeletionTimestamp != nil {
						apitest.Change(cl.API, p, "status", func(p *corev1.Pod) {
							p.Status.Phase = corev1.PodFailed
							p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(137)}
						})
					}
				}
				cl.gone()
				cl.want("ended", c.atLast)
				apitest.Settle(10 * time.Second)
				cl.want("replaced", "1 active, 0+1")
			})
		})
	}
}

// The controller removes its finalizer from the pods of a deleted Job.
func TestDeletedJob(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2))
		c.bind()
		c.API.Delete(c.job(), metav1.DeletePropagationBackground)
		apitest.Settle(time.Second)
		c.untracked()
		if n := len(c.pods()); n != 2 {
			t.Errorf("%d pods", n)
		}
	})
}

// A pod that loses the Job's labels is released. An orphan with the labels is adopted.
func TestOwnership(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create()
		labels := c.pods()[0].Labels
		apitest.Change(c.API, c.pods()[0], "", func(p *corev1.Pod) { p.Labels = map[string]string{"other": "one"} })
		apitest.Settle(time.Second)
		released := slices.IndexFunc(c.pods(),
			func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) == nil && !tracked(p) })
		if released < 0 || len(c.pods()) != 2 {
			t.Fatalf("pods %v", c.pods())
		}
		for _, p := range c.pods() {
			c.Phase(p, corev1.PodFailed, false) // the Job does not count the released pod
		}
		apitest.Settle(time.Second)
		c.want("failed", "0 active, 0+1")
		orphan := apitest.Pod("default", "orphan",
			func(p *corev1.Pod) { p.Labels = labels; p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		c.Create(orphan)
		apitest.Settle(time.Second)
		adopted, _ := apitest.Get[*corev1.Pod](c.API, "default", "orphan")
		if adopted == nil || metav1.GetControllerOf(adopted) == nil {
			t.Errorf("the orphan was not adopted: %+v", adopted)
		}
	})
}

func TestManagedByAnotherController(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(func(job *batchv1.Job) { job.Spec.ManagedBy = new("example.com/other") })
		if len(c.pods()) != 0 || c.job().Status.StartTime != nil {
			t.Errorf("%d pods, status %+v", len(c.pods()), c.job().Status)
		}
	})
}

// More finished pods than fit into uncountedTerminatedPods are counted in several steps.
func TestManyPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(620, 620))
		for _, p := range c.running() {
			c.Phase(p, corev1.PodSucceeded, false)
		}
		apitest.Settle(10 * time.Second)
		for len(c.running()) > 0 {
			for _, p := range c.running() {
				c.Phase(p, corev1.PodSucceeded, false)
			}
			apitest.Settle(10 * time.Second)
		}
		c.want("done", "0 active, 620+0"+complete)
		c.untracked()
		if n := len(c.pods()); n != 620 {
			t.Errorf("%d pods", n)
		}
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3))
		c.bind()
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}

// A sync reads the pods of the Job from the index instead of listing the namespace, also if the watch of pods is late,
// with or without order between watches. The Job still creates and counts each pod once.
func TestSyncsListNoPods(t *testing.T) {
	t.Parallel()
	for name, ordered := range map[string]bool{"ordered": true, "unordered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				deps := api.Deps()
				late := apitest.Lagging{Client: api.Client, Resource: client.Pods, By: 100 * time.Millisecond, Ordered: ordered}
				deps.Client = late
				deps, listed := api.Listed(deps)
				deps.Client = follow.Tracking(deps.Client, deps.Clock)
				api.Run(apitest.Must(New(deps, &api.Events, Config{})))
				c := cluster{api, t}
				c.create(sized(6, 3))
				for ended := range 6 {
					apitest.Settle(10 * time.Second)
					if n := len(c.running()); n != min(3, 6-ended) {
						t.Errorf("%d pods run after %d have ended", n, ended)
					}
					c.end(-1, corev1.PodSucceeded)
				}
				apitest.Settle(10 * time.Second)
				c.want("done", "0 active, 6+0"+complete)
				c.API.Delete(c.job(), metav1.DeletePropagationBackground)
				apitest.Settle(time.Second)
				listed()
			})
		})
	}
}
