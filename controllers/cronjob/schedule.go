package cronjob

import (
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"

	"monopod/apiserver/kit/batch"
	"monopod/controllers/owned"
)

const (
	// manyMissed is the number of missed starts above which the controller warns; it is upstream's.
	manyMissed = 100
	// smallStep is how far the clock may go back without a start being repeated, as in
	// Debian's cron. A clock that went back further was wrong before: an edge device
	// often starts with any date, and gets the right one from the network.
	smallStep = 3 * time.Hour
)

// beginning returns the time after which starts count: begun, or now if the clock has gone back since then or the
// last start is in the future.
func beginning(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	ahead := batch.ScheduledSince(cj).Sub(now) > smallStep
	if ahead && (begun.IsZero() || begun.After(now)) || begun.Sub(now) > smallStep {
		return now
	}
	return begun
}

// earliest returns the time after which starts may be due: the latest of the last start or the creation, begun, and
// now minus startingDeadlineSeconds.
func earliest(cj *batchv1.CronJob, begun, now time.Time) time.Time {
	since := batch.ScheduledSince(cj)
	if begun.After(since) || since.Sub(now) > smallStep {
		since = begun
	}
	if n := cj.Spec.StartingDeadlineSeconds; n != nil {
		if limit := now.Add(-owned.Seconds(*n)); limit.After(since) {
			since = limit
		}
	}
	return since
}

// due returns the last start after since that is not after now, zero if there is none, and the number of these
// starts, at most manyMissed+1. next is the first start after now.
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

// dueEvery is due for "@every": starts are multiples of delay after since.
func dueEvery(s cron.ConstantDelaySchedule, since, now time.Time) (last, next time.Time, count int) {
	n := max(0, now.Sub(since)/s.Delay)
	if n > 0 {
		last = since.Add(n * s.Delay)
	}
	return last, batch.NextTime(s, since, now), int(min(n, manyMissed+1))
}

// lastUpTo returns the last start that is not after now; start is one of them. It bisects, since there may be
// millions.
func lastUpTo(s cron.Schedule, start, now time.Time) time.Time {
	low, high := start, now // the start after low is not after now, the start after high is
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
