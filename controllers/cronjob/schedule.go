package cronjob

import (
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

const (
	// manyMissed is how many starts may be missed without a warning; it is upstream's.
	manyMissed = 100
	// smallStep is how far the clock may go back without a start being repeated, as in
	// Debian's cron. A clock that went back further was wrong before: an edge device
	// often starts with any date, and gets the right one from the network.
	smallStep = 3 * time.Hour
)

// parse reads the schedule in the CronJob's zone, the process's own if it names none.
func parse(cj *batchv1.CronJob) (cron.Schedule, error) {
	schedule, err := cron.ParseStandard(cj.Spec.Schedule)
	if err != nil || cj.Spec.TimeZone == nil {
		return schedule, err
	}
	zone, err := time.LoadLocation(*cj.Spec.TimeZone)
	if err != nil {
		return nil, err
	}
	if s, ok := schedule.(*cron.SpecSchedule); ok {
		s.Location = zone
	}
	return schedule, nil
}

// base is the last start, or the creation.
func base(cj *batchv1.CronJob) time.Time {
	if last := cj.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return cj.CreationTimestamp.Time
}

// beginning is when the starts begin to count: begun unless the clock has gone back since,
// or says that the last start is still to come; then it is now.
func beginning(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	ahead := base(cj).Sub(now) > smallStep
	if ahead && (begun.IsZero() || begun.After(now)) || begun.Sub(now) > smallStep {
		return now
	}
	return begun
}

// earliest is when the starts begin that are looked at: the last one, the creation, or
// begun, and no more than startingDeadlineSeconds ago.
func earliest(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	since := base(cj)
	if begun.After(since) || since.Sub(now) > smallStep {
		since = begun
	}
	if n := cj.Spec.StartingDeadlineSeconds; n != nil {
		if limit := now.Add(-time.Duration(*n) * time.Second); limit.After(since) {
			since = limit
		}
	}
	return since
}

// due returns the last start after since and up to now, the zero time if there is none,
// and how many there are, at most manyMissed+1; next is the start after now.
func due(schedule cron.Schedule, since, now time.Time) (last, next time.Time, count int) {
	if every, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return dueEvery(every.Delay, since, now)
	}
	if now.Before(since) {
		return last, schedule.Next(since), 0
	}
	next = schedule.Next(now)
	for t := schedule.Next(since); !t.IsZero() && !t.After(now); t = schedule.Next(t) {
		last = t
		if count++; count > manyMissed {
			return lastUpTo(schedule, t, now), next, count
		}
	}
	return last, next, count
}

// dueEvery is due for "@every": starts are whole delays after since.
func dueEvery(delay time.Duration, since, now time.Time) (last, next time.Time, count int) {
	n := max(0, now.Sub(since)/delay)
	next = since.Add((n + 1) * delay)
	if n > 0 {
		last = since.Add(n * delay)
	}
	return last, next, int(min(n, manyMissed+1))
}

// lastUpTo finds the last start up to now, if start is one: it bisects, since there may be
// millions of them.
func lastUpTo(schedule cron.Schedule, start, now time.Time) time.Time {
	low, high := start, now // the start after low is not after now, the one after high is
	if schedule.Next(low).After(now) {
		return start
	}
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2)
		if t := schedule.Next(middle); t.IsZero() || t.After(now) {
			high = middle
		} else {
			low = middle
		}
	}
	return schedule.Next(low)
}
