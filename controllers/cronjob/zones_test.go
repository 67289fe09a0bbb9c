package cronjob

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/batch"
	"monopod/controllers/internal/apitest"
)

// TestTransitions tests the transitions to and from daylight saving time, as in upstream's library: a skipped time has
// no Job. A repeated time has two Jobs if the schedule matches every hour, otherwise one.
func TestTransitions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule, zone, day string
		want                string // the starts of 26 hours from midnight UTC on
	}{
		"Berlin, spring, every hour": {"0 * * * *", "Europe/Berlin", "2026-03-29",
			"00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26"},
		"Berlin, autumn, every hour": {"0 * * * *", "Europe/Berlin", "2026-10-25",
			"00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26"},
		"Berlin, spring, before":            {"0 1 * * *", "Europe/Berlin", "2026-03-29", "00 23"},
		"Berlin, spring, the skipped hour":  {"0 2 * * *", "Europe/Berlin", "2026-03-29", "24"},
		"Berlin, spring, after":             {"0 3 * * *", "Europe/Berlin", "2026-03-29", "01 25"},
		"Berlin, autumn, the repeated hour": {"0 2 * * *", "Europe/Berlin", "2026-10-25", "00 01 25"},
		"Berlin, autumn, after":             {"0 3 * * *", "Europe/Berlin", "2026-10-25", "02 26"},
		"New York, spring, skipped":         {"0 2 * * *", "America/New_York", "2026-03-08", ""},
		"New York, autumn, repeated":        {"0 1 * * *", "America/New_York", "2026-11-01", "05 06"},
		"half an hour, Lord Howe": {"0 * * * *", "Australia/Lord_Howe", "2026-10-03",
			"00:30 01:30 02:30 03:30 04:30 05:30 06:30 07:30 08:30 09:30 10:30 11:30 12:30 13:30 14:30 16 17 18 19 20 21 22 " +
				"23 24 25 26"},
		"midnight in Kathmandu": {"0 0 * * *", "Asia/Kathmandu", "2026-01-01", "18:15"},
	} {
		t.Run(name, func(t *testing.T) {
			cj := hourly(onSchedule(c.schedule))
			cj.Spec.TimeZone = &c.zone
			s, err := batch.ScheduleOf(cj)
			if err != nil {
				t.Fatal(err)
			}
			first, got := at(t, c.day+"T00:00:00Z"), ""
			for when := s.Next(first.Add(-time.Second)); !when.After(first.Add(26 * time.Hour)); when = s.Next(when) {
				d := when.Sub(first)
				text := fmt.Sprintf("%02d", int(d.Hours()))
				if m := int(d.Minutes()) % 60; m != 0 {
					text += fmt.Sprintf(":%02d", m)
				}
				if got != "" {
					got += " "
				}
				got += text
			}
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// The API rejects a schedule that contains a time zone, and an unknown timeZone.
func TestZonesInTheSchedule(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		stored := hourly(func(cj *batchv1.CronJob) { cj.Spec.TimeZone = new("Etc/UTC") })
		for _, text := range []string{"TZ=Asia/Kolkata 30 2 * * *", "CRON_TZ=Asia/Kolkata 30 2 * * *"} {
			refused := stored.DeepCopy()
			refused.Spec.Schedule, refused.Spec.TimeZone = text, nil
			if _, err := c.Client.Create(t.Context(), refused); err == nil {
				t.Errorf("%s was accepted", text)
			}
		}
		refused := stored.DeepCopy()
		refused.Spec.TimeZone = new("Nowhere/City")
		if _, err := c.Client.Create(t.Context(), refused); err == nil {
			t.Error("an unknown zone was accepted")
		}
	})
}

// After a change of the time zone, the controller creates no Jobs for earlier scheduled times, as after a change of the
// schedule.
func TestNewZone(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("0 3 * * *")))
		apitest.Settle(2 * time.Hour)
		c.change(func(cj *batchv1.CronJob) { cj.Spec.TimeZone = new("Asia/Tokyo") }) // 03:00 in Tokyo is 18:00 UTC
		apitest.Settle(2 * time.Hour)
		c.want("after the change", "")
		apitest.Settle(14 * time.Hour)
		c.want("in the new zone", "1/18:00")
		job := apitest.List[*batchv1.Job](c.API, "default")[0]
		if got := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]; got != "2000-01-02T03:00:00+09:00" {
			t.Errorf("annotation %q", got)
		}
	})
}

// Missed Jobs are created only within startingDeadlineSeconds. If that is less than the time between two scheduled
// times, no Job is created twice.
func TestStartingDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		deadline *int64
		want     string // unsuspended at 05:30
	}{
		"none":      {nil, "1/05:00"},
		"too short": {new(int64(600)), ""},
		"enough":    {new(int64(1900)), "1/05:00"},
		"very long": {new(int64(1 << 40)), "1/05:00"}, // longer than what a duration can hold, in ns
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.Create(hourly(suspend(true), func(cj *batchv1.CronJob) { cj.Spec.StartingDeadlineSeconds = c.deadline }))
				apitest.Settle(5*time.Hour + 30*time.Minute)
				cl.change(suspend(false))
				cl.want("resumed", c.want)
			})
		})
	}
}

// The controller counts missed times within startingDeadlineSeconds, not since the last scheduled time.
func TestDeadlineLimitsMissed(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(onSchedule("* * * * *"), suspend(true), deadline(600)))
		apitest.Settle(300*time.Minute + time.Second)
		c.change(suspend(false))
		c.want("the last one", "1/05:00")
		if got := c.Events.Count(); got["TooManyMissedTimes"] != 0 {
			t.Errorf("events %v", got)
		}
	})
}

// Suspending does not affect running Jobs, and the history limits still apply.
func TestSuspendWhileRunning(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(func(cj *batchv1.CronJob) { cj.Spec.SuccessfulJobsHistoryLimit = new(int32(0)) }))
		apitest.Settle(time.Hour + time.Minute)
		c.change(suspend(true))
		apitest.Settle(time.Hour)
		c.want("runs on", "1/01:00")
		c.finish(batchv1.JobComplete)
		c.want("over", "")
		if s := c.status(); len(s.Active) != 0 || s.LastSuccessfulTime == nil {
			t.Errorf("status %+v", s)
		}
	})
}

// Replace deletes all running Jobs, including those that an earlier Allow created.
func TestReplaceEndsAll(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(3*time.Hour + time.Minute)
		c.want("Allow", "1/01:00 1/02:00 1/03:00")
		c.change(policy(batchv1.ReplaceConcurrent))
		apitest.Settle(time.Hour)
		c.want("Replace", "1/04:00")
		if s := c.status(); len(s.Active) != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// A finished Job that still exists does not forbid the next one.
func TestForbidAfterTheEnd(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly(policy(batchv1.ForbidConcurrent)))
		apitest.Settle(time.Hour + time.Minute)
		c.finish(batchv1.JobFailed)
		apitest.Settle(time.Hour)
		c.want("both", "1/01:00 1/02:00")
		if got := c.Events.Count(); got["JobAlreadyActive"] != 0 {
			t.Errorf("events %v", got)
		}
	})
}

// The Job gets the template's labels, annotations and spec; a changed template affects only the next Job.
func TestTemplateChanges(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(hourly())
		apitest.Settle(time.Hour + time.Minute)
		c.change(func(cj *batchv1.CronJob) {
			cj.Spec.JobTemplate.Labels["l"] = "2"
			cj.Spec.JobTemplate.Spec.BackoffLimit = new(int32(3))
		})
		apitest.Settle(time.Hour)
		got := ""
		for _, job := range apitest.List[*batchv1.Job](c.API, "default") {
			got += fmt.Sprintf("%s:%d ", job.Labels["l"], *job.Spec.BackoffLimit)
		}
		if got != "1:6 2:3 " {
			t.Errorf("Jobs %s", got)
		}
	})
}

// A CronJob that is being deleted creates no Jobs; its Jobs are deleted through their owner references.
func TestDeletedCronJob(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		cj := hourly()
		cj.Finalizers = []string{"example.com/wait"}
		c.Create(cj)
		apitest.Settle(time.Hour + time.Minute)
		c.API.Delete(hourly(), metav1.DeletePropagationBackground)
		apitest.Settle(3 * time.Hour)
		c.want("none is started", "1/01:00")
		if got := apitest.List[*batchv1.Job](c.API, "default")[0].OwnerReferences; len(got) != 1 ||
			got[0].Kind != "CronJob" || !*got[0].BlockOwnerDeletion {
			t.Errorf("owners %+v", got)
		}
	})
}

// If another object has the Job's name, this scheduled time is skipped, and the next one is not.
func TestNameIsTaken(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		stored := hourly()
		job := jobFor(stored, time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC))
		job.OwnerReferences = nil
		c.Create(stored, job)
		apitest.Settle(2*time.Hour + time.Minute)
		if got := c.status(); len(got.Active) != 1 || got.LastScheduleTime.Hour() != 2 {
			t.Errorf("status %+v", got)
		}
		for _, ref := range c.status().Active {
			if ref.Name == job.Name {
				t.Error("the Job of another owner is listed as active")
			}
		}
	})
}
