package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

func (f workloads) job(j *batchv1.Job) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	events := f.EventLines(f.EventsOf(j))
	counts := fmt.Sprintf("%d active, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
	if c := jobCondition(j, batchv1.JobFailed); c != nil {
		return f.jobFailed(j, c,
			append([]string{counts, "condition Failed: " + words.Reason(c.Reason, c.Message)}, events...))
	}
	if jobCondition(j, batchv1.JobComplete) != nil {
		return answer("", []string{counts}, "Job %s is complete.", j.Name)
	}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return answer(fmt.Sprintf(`kubectl patch job %s -p '{"spec":{"suspend":false}}'`, j.Name), events,
			"Job %s is suspended: it runs no pods.", j.Name)
	}
	state := fmt.Sprintf("Job %s is not complete (%s)", j.Name, counts)
	if j.Status.Active == 0 {
		if a := f.notCreated(state, j, f.creationError(j)); a != nil {
			return *a
		}
	}
	if a := f.worstPod(state, f.Pods); a != nil {
		return *a
	}
	return answer("", append([]string{counts}, events...), "Job %s runs: %s.", j.Name, counts)
}

// jobFailed explains a Job that has failed, with the newest pod that failed.
func (f workloads) jobFailed(j *batchv1.Job, c *batchv1.JobCondition, evidence []string) Answer {
	const defaultBackoffLimit = 6
	causes := map[string]string{
		batchv1.JobReasonBackoffLimitExceeded: fmt.Sprintf("its pods failed more often than backoffLimit (%d) allows",
			ptr.Deref(j.Spec.BackoffLimit, defaultBackoffLimit)),
		batchv1.JobReasonDeadlineExceeded:         "it ran longer than activeDeadlineSeconds",
		batchv1.JobReasonPodFailurePolicy:         "its podFailurePolicy ends it: " + words.Clip(c.Message),
		batchv1.JobReasonFailedIndexes:            "some of its indexes failed",
		batchv1.JobReasonMaxFailedIndexesExceeded: "more indexes failed than maxFailedIndexes allows",
	}
	cause, ok := causes[c.Reason]
	if !ok {
		cause = words.Reason(c.Reason, c.Message)
	}
	a := answer("Fix the cause, then create the Job again: kubectl delete job "+j.Name, evidence,
		"Job %s has failed: %s.", j.Name, cause)
	if c.Reason == batchv1.JobReasonDeadlineExceeded {
		a.Do = "Raise activeDeadlineSeconds, or make the work shorter, and create the Job again."
	}
	failed := slices.DeleteFunc(slices.Clone(f.Pods),
		func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodFailed })
	if p := facts.Worst(failed); p != nil {
		last := f.about(p).explain()
		a.Sentence += " " + last.Sentence
		a.Evidence = append(a.Evidence, last.Evidence...)
	}
	return a
}

func jobCondition(j *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	i := slices.IndexFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return nil
	}
	return &j.Status.Conditions[i]
}

// maxStarts is the number of scheduled times that an Answer lists.
const maxStarts = 5

func (f workloads) cronJob(c *batchv1.CronJob) Answer {
	a := f.explainCronJob(c)
	if c.DeletionTimestamp != nil || ptr.Deref(c.Spec.Suspend, false) {
		return a
	}
	times, next := nextStart(c, f.Now)
	for ; !next.IsZero() && len(a.Starts) < maxStarts; next = batch.NextTime(times, next, next) {
		a.Starts = append(a.Starts, next)
	}
	return a
}

func (f workloads) explainCronJob(c *batchv1.CronJob) Answer {
	if a := f.terminating(); a != nil {
		return *a
	}
	evidence := []string{fmt.Sprintf("schedule: %s", c.Spec.Schedule)}
	if t := c.Status.LastScheduleTime; t != nil {
		evidence = append(evidence,
			fmt.Sprintf("last start: %s (%s ago)", t.UTC().Format(time.RFC3339), words.Ago(f.Now.Sub(t.Time))))
	} else {
		evidence = append(evidence, "it has never started a Job")
	}
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return answer(fmt.Sprintf(`kubectl patch cronjob %s -p '{"spec":{"suspend":false}}'`, c.Name), evidence,
			"CronJob %s is suspended: it starts no Jobs.", c.Name)
	}
	times, next := nextStart(c, f.Now)
	if times == nil || next.IsZero() {
		return answer("Correct spec.schedule or spec.timeZone; the five fields of a schedule are minute, hour, "+
			"day of the month, month and day of the week.", evidence, "CronJob %s never runs: %s.", c.Name, neverRuns(c, times))
	}
	evidence = append(evidence, "next start: "+next.UTC().Format(time.RFC3339))
	events := f.EventsOf(c)
	evidence = append(evidence, f.EventLines(events)...)
	for _, e := range slices.Backward(events) {
		switch e.Reason {
		case "TooManyMissedTimes", "MissSchedule":
			return answer("Check the machine's clock and startingDeadlineSeconds; monopod must run at the scheduled time.",
				evidence, "CronJob %s has missed a start: %s.", c.Name, words.Clip(e.Message))
		case "JobAlreadyActive":
			return answer("Wait, make the Job shorter, or set concurrencyPolicy to Allow or Replace.", evidence,
				"CronJob %s does not start a Job while the previous one runs (concurrencyPolicy: Forbid).", c.Name)
		case "FailedCreate":
			return *f.notCreated("CronJob "+c.Name+" starts no Job", c, e.Message)
		}
		if e.Reason == "SuccessfulCreate" {
			break
		}
	}
	if last := f.LastJob(c); last != nil {
		a := f.about(last).explain()
		a.Sentence = fmt.Sprintf("CronJob %s runs next in %s. Its last Job: %s", c.Name, words.Ago(next.Sub(f.Now)),
			a.Sentence)
		a.Evidence = append(evidence, a.Evidence...)
		return a
	}
	return answer("", evidence, "CronJob %s runs next in %s, at %s.", c.Name, words.Ago(next.Sub(f.Now)),
		next.UTC().Format(time.RFC3339))
}

// nextStart returns the schedule of a CronJob and its next start after now. The schedule is nil if it cannot be parsed;
// the time is zero if no date matches the schedule.
func nextStart(c *batchv1.CronJob, now time.Time) (cron.Schedule, time.Time) {
	times, err := batch.ScheduleOf(c)
	if err != nil {
		return nil, time.Time{}
	}
	return times, batch.NextTime(times, batch.ScheduledSince(c), now)
}

// neverRuns says why a CronJob without a next start never runs.
func neverRuns(c *batchv1.CronJob, times cron.Schedule) string {
	switch {
	case times != nil:
		return fmt.Sprintf("no date matches its schedule %q", c.Spec.Schedule)
	case c.Spec.TimeZone != nil:
		return fmt.Sprintf("its schedule %q or its time zone %q is not valid", c.Spec.Schedule, *c.Spec.TimeZone)
	}
	return fmt.Sprintf("its schedule %q is not valid", c.Spec.Schedule)
}
