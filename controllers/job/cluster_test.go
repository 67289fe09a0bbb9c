package job

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// task is a Job with upstream's defaults: one pod, backoffLimit 6.
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
		api.Run(apitest.Must(New(api.Deps(), &api.Events, Config{})))
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
	return apitest.Existing[*batchv1.Job](c.API, "default", "task")
}

// pods returns all pods, sorted by index.
func (c cluster) pods() []*corev1.Pod {
	pods := apitest.List[*corev1.Pod](c.API, "default")
	slices.SortStableFunc(pods, (&syncState{}).byIndex)
	return pods
}

// running returns the pods that are neither finished nor terminating.
func (c cluster) running() []*corev1.Pod {
	return slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// bind binds running pods to a node. A bound pod that is deleted terminates until gone is called.
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

// gone removes all terminating pods, as their node does.
func (c cluster) gone() {
	c.t.Helper()
	c.EndPods("default")
}

// end sets the phase of one running pod, that of the index unless it is negative.
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
	return corev1.ContainerStatus{Name: "c", Image: "image",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, FinishedAt: metav1.Now()}}}
}

// state formats the status of the Job: active, ready and terminating pods, succeeded+failed, completed ("done") and
// failed ("lost") indexes, and the conditions that are true.
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
			c.t.Errorf("pod %s still has the Job's finalizer", p.Name)
		}
	}
}
