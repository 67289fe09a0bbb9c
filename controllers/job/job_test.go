package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// task is a Job with upstream's defaults: one pod, which may fail six times.
func task(change ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "task"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "image"}},
		}}},
	}
	for _, f := range change {
		f(job)
	}
	return job
}

func sized(completions, parallelism int32) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.Completions, job.Spec.Parallelism = &completions, &parallelism }
}

func withIndexes(job *batchv1.Job) {
	job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
}

func limited(n int32) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.BackoffLimit = &n }
}

func suspend(yes bool) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.Suspend = &yes }
}

// cluster is an API with the controller.
type cluster struct {
	*apitest.API
	t *testing.T
}

// within runs a test in virtual time against a running controller.
func within(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		api.Run(New(api.Deps(), &api.Events, Config{}))
		test(t, cluster{api, t})
	})
}

func (c cluster) create(change ...func(*batchv1.Job)) {
	c.t.Helper()
	c.Create(task(change...))
	apitest.Settle(time.Second)
}

func (c cluster) change(f func(*batchv1.Job)) {
	c.t.Helper()
	apitest.Change(c.API, task(), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) job() *batchv1.Job {
	c.t.Helper()
	job, ok := apitest.Get[*batchv1.Job](c.API, "default", "task")
	if !ok {
		c.t.Fatal("the Job is gone")
	}
	return job
}

// pods are all pods, in the order of their indexes.
func (c cluster) pods() []*corev1.Pod {
	pods := apitest.List[*corev1.Pod](c.API, "default")
	slices.SortStableFunc(pods, (&round{}).byIndex)
	return pods
}

// running are the pods that are neither finished nor being deleted.
func (c cluster) running() []*corev1.Pod {
	return slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// bind gives running pods a node: deleted ones are then terminating until gone is called.
func (c cluster) bind() {
	c.t.Helper()
	for _, p := range c.running() {
		if p.Spec.NodeName == "" {
			apitest.Change(c.API, p, "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		}
		c.Phase(p, corev1.PodRunning, true)
	}
	apitest.Settle(time.Second)
}

// gone ends all terminating pods as their node does.
func (c cluster) gone() {
	c.t.Helper()
	for _, p := range c.pods() {
		if p.DeletionTimestamp != nil {
			if _, err := c.Client.Delete(c.t.Context(), client.RefOf(p), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	apitest.Settle(time.Second)
}

// end lets one running pod finish, of an index if it is not negative.
func (c cluster) end(index int32, phase corev1.PodPhase, change ...func(*corev1.Pod)) {
	c.t.Helper()
	for _, p := range c.running() {
		i, _ := number(p, batchv1.JobCompletionIndexAnnotation)
		if index >= 0 && i != index {
			continue
		}
		apitest.Change(c.API, p, "status", func(p *corev1.Pod) {
			p.Status.Phase = phase
			p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(0)}
			if phase == corev1.PodFailed {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(1)}
			}
			for _, f := range change {
				f(p)
			}
		})
		apitest.Settle(time.Second)
		return
	}
	c.t.Fatalf("no running pod of index %d", index)
}

func exitedWith(code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "c", Image: "image", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, FinishedAt: metav1.Now()}}}
}

// state is the Job in a line: active/ready/terminating, succeeded, failed, the conditions
// that are true, and the indexes.
func (c cluster) state() string {
	c.t.Helper()
	s := c.job().Status
	out := fmt.Sprintf("%d active", s.Active)
	if s.Ready != nil && *s.Ready > 0 {
		out += fmt.Sprintf(", %d ready", *s.Ready)
	}
	if s.Terminating != nil && *s.Terminating > 0 {
		out += fmt.Sprintf(", %d terminating", *s.Terminating)
	}
	out += fmt.Sprintf(", %d+%d", s.Succeeded, s.Failed)
	if s.CompletedIndexes != "" {
		out += ", done " + s.CompletedIndexes
	}
	if s.FailedIndexes != nil && *s.FailedIndexes != "" {
		out += ", lost " + *s.FailedIndexes
	}
	for _, cond := range s.Conditions {
		if cond.Status == corev1.ConditionTrue {
			out += fmt.Sprintf(", %s %s", cond.Type, cond.Reason)
		}
	}
	return out
}

func (c cluster) want(what, want string) {
	c.t.Helper()
	if got := c.state(); got != want {
		c.t.Fatalf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// untracked fails the test if a pod still has the finalizer.
func (c cluster) untracked() {
	c.t.Helper()
	for _, p := range c.pods() {
		if tracked(p) {
			c.t.Errorf("pod %s keeps its finalizer", p.Name)
		}
	}
}

const complete = ", SuccessCriteriaMet CompletionsReached, Complete CompletionsReached"

func TestOnePod(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create()
		c.want("created", "1 active, 0+0")
		p := c.pods()[0]
		if !tracked(p) || !metav1.IsControlledBy(p, c.job()) || p.Labels[batchv1.JobNameLabel] != "task" || p.Labels[batchv1.ControllerUidLabel] != string(c.job().UID) ||
			!strings.HasPrefix(p.Name, "task-") || len(p.Name) != len("task-12345") || p.Annotations[batchv1.JobCompletionIndexAnnotation] != "" {
			t.Errorf("pod %+v", p.ObjectMeta)
		}
		c.bind()
		c.want("running", "1 active, 1 ready, 0+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 1+0"+complete)
		c.untracked()
		s := c.job().Status
		if s.StartTime == nil || s.CompletionTime == nil || s.CompletionTime.Sub(s.StartTime.Time) != 2*time.Second || len(s.UncountedTerminatedPods.Succeeded) != 0 {
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
		c.want("no more than is missing", "1 active, 2+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("done", "0 active, 3+0"+complete)
		c.untracked()
		if n := len(c.pods()); n != 3 {
			t.Errorf("%d pods", n)
		}
	})
}

// Without completions one success ends the Job, once the other pods have ended.
func TestWorkQueue(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(func(job *batchv1.Job) { job.Spec.Parallelism = new(int32(3)) })
		c.want("created", "3 active, 0+0")
		c.end(-1, corev1.PodSucceeded)
		c.want("no new ones", "2 active, 1+0")
		c.end(-1, corev1.PodFailed)
		c.want("nor for failed ones", "1 active, 1+1")
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

// A failed pod is replaced after 10 s, 20 s, 40 s; one more than backoffLimit ends the Job.
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

// The other pods of a Job that fails are deleted, counted as failed and awaited.
func TestFailureEndsTheOthers(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), limited(0))
		c.bind()
		c.end(-1, corev1.PodFailed)
		c.want("target", "0 active, 2 terminating, 0+3, FailureTarget BackoffLimitExceeded")
		c.gone()
		c.want("failed", "0 active, 0+3, FailureTarget BackoffLimitExceeded, Failed BackoffLimitExceeded")
	})
}

// Containers that are restarted in place count, too.
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

func TestSuspend(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 2), suspend(true), func(job *batchv1.Job) { job.Spec.ActiveDeadlineSeconds = new(int64(60)) })
		c.want("created", "0 active, 0+0, Suspended JobSuspended")
		if c.job().Status.StartTime != nil {
			t.Error("it has started")
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
		c.want("goes on", "2 active, 1+0")
		if !c.job().Status.StartTime.After(first.Time) {
			t.Error("the start is the old one")
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
			job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "image", Env: []corev1.EnvVar{{Name: indexEnv, Value: "own"}}}}
		})
		for i, p := range c.pods() {
			n := fmt.Sprint(i)
			env := p.Spec.Containers[0].Env[0]
			if p.Annotations[batchv1.JobCompletionIndexAnnotation] != n || p.Labels[batchv1.JobCompletionIndexAnnotation] != n || p.Spec.Hostname != "task-"+n ||
				!strings.HasPrefix(p.Name, "task-"+n+"-") || env.Name != indexEnv || env.ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" ||
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

// A pod of an index more than once, or of an index that there is not, goes.
func TestWrongIndexes(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2), withIndexes)
		for _, index := range []string{"0", "7", "x"} {
			p := c.pods()[0].DeepCopy()
			p.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "extra-" + index, Labels: p.Labels, OwnerReferences: p.OwnerReferences,
				Finalizers: p.Finalizers, Annotations: map[string]string{batchv1.JobCompletionIndexAnnotation: index}}
			c.Create(p)
		}
		apitest.Settle(time.Second)
		c.want("two again", "2 active, 0+0")
		if n := len(c.pods()); n != 2 {
			t.Errorf("%d pods", n)
		}
	})
}

// An elastic Job grows and shrinks with its parallelism.
func TestElastic(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(3, 3), withIndexes)
		c.end(2, corev1.PodSucceeded)
		c.change(sized(2, 2))
		c.want("index 2 is not asked for any more", "2 active, 0+0")
		c.change(sized(4, 4))
		c.want("all again", "4 active, 0+0")
		c.change(sized(1, 1))
		c.end(0, corev1.PodSucceeded)
		c.want("done", "0 active, 1+0, done 0"+complete)
	})
}

// A pod that is deleted counts as failed and is replaced; with podReplacementPolicy
// Failed not before it has ended.
func TestDeletedPod(t *testing.T) {
	for name, c := range map[string]struct {
		policy                    batchv1.PodReplacementPolicy
		deleted, replaced, atLast string
	}{
		"at once":        {batchv1.TerminatingOrFailed, "0 active, 1 terminating, 0+1", "1 active, 1 terminating, 0+1", "1 active, 0+1"},
		"when it is off": {batchv1.Failed, "0 active, 1 terminating, 0+0", "0 active, 1 terminating, 0+0", "0 active, 0+1"},
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
				cl.want("gone", c.atLast)
				apitest.Settle(10 * time.Second)
				cl.want("replaced", "1 active, 0+1")
			})
		})
	}
}

// Pods of a Job that is deleted lose the finalizer: nobody counts them any more.
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

// A pod that loses the Job's labels is released, one that gets them is adopted and counted.
func TestOwnership(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create()
		labels := c.pods()[0].Labels
		apitest.Change(c.API, c.pods()[0], "", func(p *corev1.Pod) { p.Labels = map[string]string{"other": "one"} })
		apitest.Settle(time.Second)
		released := slices.IndexFunc(c.pods(), func(p *corev1.Pod) bool { return metav1.GetControllerOf(p) == nil && !tracked(p) })
		if released < 0 || len(c.pods()) != 2 {
			t.Fatalf("pods %v", c.pods())
		}
		for _, p := range c.pods() {
			c.Phase(p, corev1.PodFailed, false) // the orphan counts for nothing
		}
		apitest.Settle(time.Second)
		c.want("failed", "0 active, 0+1")
		orphan := apitest.Pod("default", "orphan", func(p *corev1.Pod) { p.Labels = labels; p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		c.Create(orphan)
		apitest.Settle(time.Second)
		adopted, _ := apitest.Get[*corev1.Pod](c.API, "default", "orphan")
		if adopted == nil || metav1.GetControllerOf(adopted) == nil {
			t.Errorf("the orphan was not adopted: %+v", adopted)
		}
	})
}

func TestManagedByAnother(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(func(job *batchv1.Job) { job.Spec.ManagedBy = new("example.com/other") })
		if len(c.pods()) != 0 || c.job().Status.StartTime != nil {
			t.Errorf("it was run: %+v", c.job().Status)
		}
	})
}

// More pods than one status has room for are counted in steps.
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

// broken is a client whose writes fail from the nth on, as if the process had been killed
// before it.
type broken struct {
	client.Client
	left *atomic.Int64
}

var errKilled = errors.New("killed")

func killedBefore(c client.Client, write int) *broken {
	b := &broken{c, new(atomic.Int64)}
	b.left.Store(int64(write))
	return b
}

func (b *broken) alive() bool { return b.left.Add(-1) >= 0 }

func (b *broken) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Update(ctx, ref, change)
}

func (b *broken) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Create(ctx, obj)
}

func (b *broken) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	if !b.alive() {
		return nil, errKilled
	}
	return b.Client.Delete(ctx, ref, opts)
}

// Killed before any of its writes, the controller counts every pod once after the restart.
func TestKilledAtEachWrite(t *testing.T) {
	for name, mode := range map[string]func(*batchv1.Job){"NonIndexed": func(*batchv1.Job) {}, "Indexed": withIndexes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for n := range 12 {
					api := apitest.New(t)
					c := cluster{api, t}
					ctx := t.Context()
					sync := func(to client.Client) {
						deps := api.Deps()
						deps.Client = to
						r := newRun(New(deps, &api.Events, Config{}))
						for range 4 {
							_, _ = r.reconcile(ctx, follow.KeyOf(task()))
						}
					}
					api.Create(task(sized(3, 3), limited(9), mode))
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					if got := len(c.running()); got != 3 {
						t.Fatalf("killed before write %d: %d pods", n, got)
					}
					c.end(0, corev1.PodFailed)
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					if s := c.job().Status; s.Failed != 1 || s.Succeeded != 0 || len(s.UncountedTerminatedPods.Failed) != 0 {
						t.Fatalf("killed before write %d: %+v", n, s)
					}
					time.Sleep(time.Minute)
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					for len(c.running()) > 0 {
						c.end(-1, corev1.PodSucceeded)
					}
					sync(killedBefore(api.Client, n))
					sync(api.Client)
					c.want(fmt.Sprintf("killed before write %d", n), map[string]string{
						"NonIndexed": "0 active, 3+1" + complete, "Indexed": "0 active, 3+1, done 0-2" + complete}[name])
					c.untracked()
				}
			})
		})
	}
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
