package batch

import (
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// ScheduleOf returns the schedule of a CronJob in its time zone, by default that of the process.
func ScheduleOf(cj *batchv1.CronJob) (cron.Schedule, error) {
	s, err := cron.ParseStandard(cj.Spec.Schedule)
	if err != nil || cj.Spec.TimeZone == nil {
		return s, err
	}
	zone, err := time.LoadLocation(*cj.Spec.TimeZone)
	if err != nil {
		return nil, err
	}
	if spec, ok := s.(*cron.SpecSchedule); ok {
		spec.Location = zone
	}
	return s, nil
}

// ScheduledSince returns the time of the last start, or of the creation.
func ScheduledSince(cj *batchv1.CronJob) time.Time {
	if last := cj.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return cj.CreationTimestamp.Time
}

// NextTime returns the first start after now and since, or zero if there is none, as for February 30. For "@every" the
// starts are multiples of the interval after since.
func NextTime(s cron.Schedule, since, now time.Time) time.Time {
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return since.Add((max(0, now.Sub(since)/every.Delay) + 1) * every.Delay)
	}
	if now.Before(since) {
		now = since
	}
	return s.Next(now)
}
