package cronjob

import (
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"

	"monopod/apiserver/kit/batch"
	"monopod/controllers/owned"
)

const (
	// manyMissed is the number of missed scheduled times above which the controller warns (upstream's).
	manyMissed = 100
	// maxClockStep is how far the clock may be set back without repeating a Job, as in Debian's cron. A clock that is set
	// back further was wrong before: a device without a battery-backed clock starts with an arbitrary date, and gets the
	// time from the network.
	maxClockStep = 3 * time.Hour
)

// beginning returns the time after which scheduled times count: begun, or now if the clock was set back since then or
// the last scheduled time is in the future.
func beginning(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	ahead := batch.ScheduledSince(cj).Sub(now) > maxClockStep
	if ahead && (begun.IsZero() || begun.After(now)) || begun.Sub(now) > maxClockStep {
		return now
	}
	return begun
}

// earliest returns the time after which a scheduled time may be due: the latest of the last scheduled time (or the
// creation), begun, and now minus startingDeadlineSeconds.
func earliest(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	since := batch.ScheduledSince(cj)
	if begun.After(since) || since.Sub(now) > maxClockStep {
		since = begun
	}
	if n := cj.Spec.StartingDeadlineSeconds; n != nil {
		if limit := now.Add(-owned.Seconds(*n)); limit.After(since) {
			since = limit
		}
	}
	return since
}

// due returns the last scheduled time in (since, now], zero if there is none, and the number of scheduled times in that
// interval, at most manyMissed+1. next is the first scheduled time after now.
func due(s cron.Schedule, since, now time.Time) (last, next time.Time, count int) {
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return dueEvery(every, since, now)
	}
	next = batch.NextTime(s, since, now)
	for t := s.Next(since); !t.IsZero() && !t.After(now); t = s.Next(t) {
		last = t
		if count++; count > manyMissed {
			return lastUpTo(s, t, now), next, count
		}
	}
	return last, next, count
}

// dueEvery is due for "@every": scheduled times are multiples of the delay after since.
func dueEvery(s cron.ConstantDelaySchedule, since, now time.Time) (last, next time.Time, count int) {
	n := max(0, now.Sub(since)/s.Delay)
	if n > 0 {
		last = since.Add(n * s.Delay)
	}
	return last, batch.NextTime(s, since, now), int(min(n, manyMissed+1))
}

// lastUpTo returns the last scheduled time that is not after now; start is a scheduled time. It bisects, because there
// may be millions.
func lastUpTo(s cron.Schedule, start, now time.Time) time.Time {
	low, high := start, now // invariant: s.Next(low) is not after now, s.Next(high) is
	if s.Next(low).After(now) {
		return start
	}
	for high.Sub(low) > time.Second {
		middle := low.Add(high.Sub(low) / 2)
		if t := s.Next(middle); t.IsZero() || t.After(now) {
			high = middle
		} else {
			low = middle
		}
	}
	return s.Next(low)
}
