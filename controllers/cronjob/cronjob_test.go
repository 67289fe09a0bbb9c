package cronjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hourly is a CronJob with upstream's defaults: concurrent Jobs, histories of 3 and 1.
func hourly(change ...func(*batchv1.CronJob)) *batchv1.CronJob {
	cj := &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cron"},
		Spec: batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: new("Etc/UTC"), JobTemplate: batchv1.JobTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"}},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "image"}},
			}}},
		}},
	}
	for _, f := range change {
		f(cj)
	}
	return cj
}

func policy(p batchv1.ConcurrencyPolicy) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.ConcurrencyPolicy = p }
}

func onSchedule(s string) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.Schedule = s }
}

func deadline(n int64) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = &n }
}

func suspend(yes bool) func(*batchv1.CronJob) {
	return func(cj *batchv1.CronJob) { cj.Spec.Suspend = &yes }
}

// cluster is an API with the controller, from 2000-01-01T00:00:00Z on.
type cluster struct {
	*apitest.API
	t     *testing.T
	clock apitest.Clock
}

// within runs a test in virtual time against a running controller.
func within(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster{API: apitest.New(t), t: t}
		c.Events.Watch()
		deps := c.Deps()
		c.clock = c.Settable(&deps)
		c.Run(apitest.Must(New(deps, &c.Events, Config{})))
		test(t, c)
	})
}

// set moves the clock, as a suspended machine or an administrator does.
func (c cluster) set(by time.Duration) { c.clock.Set(by) }

func (c cluster) change(f func(*batchv1.CronJob)) {
	c.t.Helper()
	apitest.Change(c.API, hourly(), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) status() batchv1.CronJobStatus {
	c.t.Helper()
	cj, ok := apitest.Get[*batchv1.CronJob](c.API, "default", "cron")
	if !ok {
		c.t.Fatal("the CronJob was deleted")
	}
	return cj.Status
}

// jobs returns the scheduled times of the Jobs that are not being deleted, as day and time.
func (c cluster) jobs() string {
	c.t.Helper()
	var out []string
	for _, job := range apitest.List[*batchv1.Job](c.API, "default") {
		if job.DeletionTimestamp != nil || !strings.HasPrefix(job.Name, "cron-") {
			continue
		}
		at, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil || job.Name != fmt.Sprintf("cron-%d", at.Unix()/60) {
			c.t.Errorf("Job %s has the scheduled time %v, %v", job.Name, at, err)
		}
		out = append(out, at.UTC().Format("2/15:04"))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (c cluster) want(what, want string) {
	c.t.Helper()
	if got := c.jobs(); got != want {
		c.t.Fatalf("%s: Jobs %q, want %q", what, got, want)
	}
}

// finish ends all running Jobs.
func (c cluster) finish(as batchv1.JobConditionType) {
	c.t.Helper()
	for _, job := range apitest.List[*batchv1.Job](c.API, "default") {
		if ended(job) != "" {
			continue
		}
		apitest.Change(c.API, job, "status", func(job *batchv1.Job) {
			now := metav1.Now()
			job.Status.StartTime = &now
			first := batchv1.JobFailureTarget
			if as == batchv1.JobComplete {
				first, job.Status.CompletionTime = batchv1.JobSuccessCriteriaMet, &now
			}
			for _, t := range []batchv1.JobConditionType{first, as} {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue})
			}
		})
	}
	apitest.Settle(time.Second)
}

// A schedule that matches no date causes an Event, as in upstream.
func TestImpossibleSchedule(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("0 0 30 2 *")))
		apitest.Settle(time.Second)
		if got := c.Events.Count(); got["InvalidSchedule"] != 1 || len(got) != 1 {
			t.Errorf("events %v", got)
		}
		c.change(func(cj *batchv1.CronJob) { cj.Spec.Schedule = "* * * * *" })
		apitest.Settle(time.Minute)
		c.want("a possible one", "1/00:01")
	})
}

func TestStarts(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(59 * time.Minute)
		c.want("too early", "")
		apitest.Settle(time.Minute)
		c.want("first", "1/01:00")
		job := apitest.List[*batchv1.Job](c.API, "default")[0]
		cj, _ := apitest.Get[*batchv1.CronJob](c.API, "default", "cron")
		if !metav1.IsControlledBy(job, cj) || job.Labels["l"] != "1" || job.Annotations["a"] != "2" ||
			job.Name != "cron-15778140" {
			t.Errorf("job %+v", job.ObjectMeta)
		}
		s := cj.Status
		if len(s.Active) != 1 || s.Active[0].Name != job.Name || s.Active[0].Kind != "Job" || s.Active[0].UID != job.UID ||
			!s.LastScheduleTime.Equal(&metav1.Time{Time: time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)}) {
			t.Errorf("status %+v", s)
		}
		apitest.Settle(time.Hour)
		c.want("Allow: two at a time", "1/01:00 1/02:00")
		c.finish(batchv1.JobComplete)
		if s := c.status(); len(s.Active) != 0 || s.LastSuccessfulTime == nil {
			t.Errorf("status %+v", s)
		}
		if got := c.Events.Count(); got["SuccessfulCreate"] != 2 || got["SawCompletedJob"] != 2 || len(got) != 2 {
			t.Errorf("events %v", got)
		}
	})
}

func TestForbid(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(policy(batchv1.ForbidConcurrent)))
		apitest.Settle(3*time.Hour + time.Minute)
		c.want("one runs", "1/01:00")
		if got := c.Events.Count(); got["JobAlreadyActive"] != 2 {
			t.Errorf("events %v", got)
		}
		c.finish(batchv1.JobComplete)
		c.want("the last missed start is made up for", "1/01:00 1/03:00")
	})
}

func TestForbidWithDeadline(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(policy(batchv1.ForbidConcurrent), deadline(60)))
		apitest.Settle(2*time.Hour + 2*time.Minute)
		c.finish(batchv1.JobComplete)
		c.want("too late", "1/01:00")
		apitest.Settle(time.Hour)
		c.want("the next one", "1/01:00 1/03:00")
	})
}

func TestReplace(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(policy(batchv1.ReplaceConcurrent)))
		apitest.Settle(2*time.Hour + time.Minute)
		c.want("the second for the first", "1/02:00")
		if s := c.status(); len(s.Active) != 1 {
			t.Errorf("status %+v", s)
		}
		if got := c.Events.Count(); got["SuccessfulDelete"] != 1 {
			t.Errorf("events %v", got)
		}
	})
}

func TestHistory(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		for range 4 {
			apitest.Settle(time.Hour)
			c.finish(batchv1.JobComplete)
		}
		c.want("three that succeeded", "1/02:00 1/03:00 1/04:00")
		for range 2 {
			apitest.Settle(time.Hour)
			c.finish(batchv1.JobFailed)
		}
		c.want("one that failed", "1/02:00 1/03:00 1/04:00 1/06:00")
		c.change(func(cj *batchv1.CronJob) { cj.Spec.SuccessfulJobsHistoryLimit = new(int32(0)) })
		c.want("none that succeeded", "1/06:00")
		c.change(func(cj *batchv1.CronJob) { cj.Spec.FailedJobsHistoryLimit = new(int32(2)) })
		for range 2 {
			apitest.Settle(time.Hour)
			c.finish(batchv1.JobFailed)
		}
		c.want("two that failed", "1/07:00 1/08:00")
		c.change(func(cj *batchv1.CronJob) { cj.Spec.FailedJobsHistoryLimit = new(int32(0)) })
		c.want("none that failed", "")
	})
}

func TestSuspend(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(suspend(true)))
		apitest.Settle(5*time.Hour + time.Minute)
		c.want("suspended", "")
		c.change(suspend(false))
		c.want("the last missed start is made up for", "1/05:00")
		apitest.Settle(time.Hour)
		c.want("goes on", "1/05:00 1/06:00")
	})
}

func TestZones(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		// UTC+5:30
		c.Create(hourly(onSchedule("30 2 * * *"), func(cj *batchv1.CronJob) { cj.Spec.TimeZone = new("Asia/Kolkata") }))
		apitest.Settle(24 * time.Hour)
		c.want("in its zone", "1/21:00")
	})
}

// After a change of the schedule, the controller creates no Jobs for earlier times of the new schedule.
func TestNewSchedule(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("0 0 1 1 *")))
		apitest.Settle(90 * time.Minute)
		c.change(onSchedule("0 * * * *"))
		c.want("not at once", "")
		apitest.Settle(30 * time.Minute)
		c.want("next", "1/02:00")
	})
}

func TestMissingJob(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(time.Hour + time.Minute)
		c.API.Delete(apitest.List[*batchv1.Job](c.API, "default")[0], metav1.DeletePropagationBackground)
		apitest.Settle(time.Minute)
		if s := c.status(); len(s.Active) != 0 {
			t.Errorf("status %+v", s)
		}
		if got := c.Events.Count(); got["MissingJob"] != 1 {
			t.Errorf("events %v", got)
		}
		apitest.Settle(50 * time.Minute)
		c.want("it is not started again", "")
	})
}

// A Job that a user created from the CronJob causes an Event and does not count as one of its runs.
func TestJobByHand(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(time.Second)
		cj, _ := apitest.Get[*batchv1.CronJob](c.API, "default", "cron")
		job := jobFor(cj, time.Now())
		job.Name = "by-hand"
		c.Create(job)
		apitest.Settle(time.Second)
		if got := c.Events.Count(); got["UnexpectedJob"] != 1 || len(c.status().Active) != 0 {
			t.Errorf("events %v, status %+v", got, c.status())
		}
		c.finish(batchv1.JobComplete)
		if c.status().LastSuccessfulTime == nil {
			t.Error("lastSuccessfulTime is missing")
		}
	})
}

// After the machine was suspended for five hours, the last missed Job starts at once, and the timer
// is set for the next one.
func TestSleep(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(time.Hour + 30*time.Minute)
		c.set(5 * time.Hour)
		c.want("awake", "1/01:00 1/06:00")
		apitest.Settle(30 * time.Minute)
		c.want("next", "1/01:00 1/06:00 1/07:00")
	})
}

// If the clock is set back from the future, the next Job starts at its time by the corrected clock.
func TestClockFarBack(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.set(240 * time.Hour)
		c.Create(hourly())
		apitest.Settle(time.Hour + 30*time.Minute)
		c.want("in the future", "11/00:00 11/01:00")
		c.set(-240 * time.Hour)
		apitest.Settle(30 * time.Minute)
		c.want("in the present", "1/02:00 11/00:00 11/01:00")
		if got := c.status().LastScheduleTime; got.Day() != 1 {
			t.Errorf("last schedule %v", got)
		}
	})
}

// If the clock is set back by two hours, the controller creates no Job twice.
func TestClockSlightlyBack(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(3*time.Hour + time.Minute)
		c.finish(batchv1.JobComplete)
		c.want("three", "1/01:00 1/02:00 1/03:00")
		c.set(-2 * time.Hour)
		apitest.Settle(2 * time.Hour)
		if got := c.Events.Count(); got["SuccessfulCreate"] != 3 {
			t.Errorf("events %v", got)
		}
		apitest.Settle(time.Hour)
		c.finish(batchv1.JobComplete)
		c.want("the fourth", "1/02:00 1/03:00 1/04:00")
	})
}

func TestManyMissed(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("* * * * *"), suspend(true)))
		apitest.Settle(200*time.Minute + time.Second)
		c.change(suspend(false))
		c.want("the last one", "1/03:20")
		if got := c.Events.Count(); got["TooManyMissedTimes"] != 1 {
			t.Errorf("events %v", got)
		}
	})
}

// noStatus is a client whose updates of CronJobs fail, as if the process had been killed before them.
type noStatus struct{ client.Client }

func (n noStatus) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Resource == client.CronJobs {
		return nil, errors.New("killed")
	}
	return n.Client.Update(ctx, ref, change)
}

// A scheduled time has one Job, even if the process is killed before it writes the status.
func TestKilledAfterCreate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster{API: apitest.New(t), t: t}
		c.Create(hourly(policy(batchv1.ForbidConcurrent)))
		time.Sleep(time.Hour)
		for _, to := range []client.Client{noStatus{c.Client}, c.Client, c.Client} {
			deps := c.Deps()
			deps.Client = to
			r := &run{Controller: apitest.Must(New(deps, &c.Events, Config{})), scheduleSince: map[types.UID]time.Time{}}
			_, _ = r.reconcile(t.Context(), follow.KeyOf(hourly()))
		}
		c.want("one", "1/01:00")
		if s := c.status(); len(s.Active) != 1 || s.LastScheduleTime == nil {
			t.Errorf("status %+v", s)
		}
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("0 0 1 6 *")))
		apitest.Settle(time.Second)
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}
