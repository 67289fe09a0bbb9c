package cronjob

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/record"
	"monopod/controllers/owned"
)

// startDue creates the Job of the last scheduled time that is due or was missed. It returns the time until the next
// scheduled time, 0 if there is none.
func (r *run) startDue(ctx context.Context, st *syncState) (time.Duration, error) {
	spec := &st.cj.Spec
	if st.cj.DeletionTimestamp != nil || spec.Suspend != nil && *spec.Suspend {
		return 0, nil
	}
	if strings.Contains(spec.Schedule, "TZ") {
		r.warn(st, "UnsupportedSchedule",
			"CRON_TZ or TZ used in schedule %q is not officially supported, "+
				"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
			spec.Schedule)
	}
	if spec.TimeZone != nil {
		if _, err := time.LoadLocation(*spec.TimeZone); err != nil {
			r.warn(st, "UnknownTimeZone", "invalid timeZone: %q: %s", *spec.TimeZone, err)
			return 0, nil
		}
	}
	times, err := batch.ScheduleOf(st.cj)
	if err != nil {
		r.warn(st, "UnparseableSchedule", "unparseable schedule: %q : %s", spec.Schedule, err)
		return 0, nil // a change of the schedule wakes it
	}
	last, next, missed := due(times, st.since, st.now)
	if last.IsZero() && next.IsZero() {
		r.warn(st, "InvalidSchedule", "invalid schedule: %s : time difference between two schedules is less than 1 second",
			spec.Schedule)
		return 0, nil
	}
	var again time.Duration
	if !next.IsZero() {
		again = max(next.Sub(st.now), time.Millisecond)
	}
	if last.IsZero() {
		return again, nil
	}
	if missed > manyMissed {
		r.warn(st, "TooManyMissedTimes",
			"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	return again, r.start(ctx, st, last)
}

// start creates the Job of a scheduled time, unless startingDeadlineSeconds have passed, or concurrencyPolicy forbids
// it because other Jobs are active.
func (r *run) start(ctx context.Context, st *syncState, at time.Time) error {
	spec, s := &st.cj.Spec, &st.cj.Status
	if n := spec.StartingDeadlineSeconds; n != nil && st.now.Sub(at) > owned.Seconds(*n) {
		r.warn(st, "MissSchedule", "Missed scheduled time to start a job: %s", at.UTC().Format(time.RFC1123Z))
		return nil
	}
	if s.LastScheduleTime.Equal(&metav1.Time{Time: at}) {
		return nil
	}
	if len(s.Active) > 0 {
		switch spec.ConcurrencyPolicy {
		case batchv1.ForbidConcurrent:
			r.normal(st, "JobAlreadyActive",
				"Not starting job because prior execution is running and concurrency policy is Forbid")
			return nil // the end of the active Job wakes it
		case batchv1.ReplaceConcurrent:
			if err := r.replace(ctx, st); err != nil {
				return err
			}
		}
	}
	job, err := r.create(ctx, st, at)
	if job == nil || err != nil {
		return err
	}
	if ended(job) == "" && !st.listsActive(job.UID) {
		s.Active = append(s.Active, record.ReferenceTo(job))
	}
	s.LastScheduleTime = &metav1.Time{Time: at}
	return nil
}

// replace deletes the active Jobs.
func (r *run) replace(ctx context.Context, st *syncState) error {
	for _, job := range st.jobs {
		if !st.listsActive(job.UID) {
			continue
		}
		if err := r.delete(ctx, st, job); err != nil {
			return err
		}
		st.unlist(job.UID)
	}
	return nil
}

// create creates the Job of a scheduled time. The Job's name contains the time, so that there is one Job even if the
// process was killed before it wrote the status. It returns nil if another object has the name or the namespace is
// terminating.
func (r *run) create(ctx context.Context, st *syncState, at time.Time) (*batchv1.Job, error) {
	made := jobFor(st.cj, at)
	name := made.Name
	created, err := r.deps.Client.Create(ctx, made)
	switch {
	case err == nil:
		r.normal(st, "SuccessfulCreate", "Created job %v", name)
		r.skew.Observe(max(0, st.now.Sub(at).Seconds()))
		return created.(*batchv1.Job), nil
	case owned.NamespaceTerminating(err):
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		job, err := client.Get[*batchv1.Job](ctx, r.deps.Client, st.cj.Namespace, name)
		if err != nil || metav1.IsControlledBy(job, st.cj) {
			return job, err
		}
		return nil, nil
	}
	r.warn(st, "FailedCreate", "Error creating job: %v", err)
	return nil, err
}

// jobFor returns the Job of a scheduled time. Its name ends with the minutes since 1970, as upstream's.
func jobFor(cj *batchv1.CronJob, at time.Time) *batchv1.Job {
	t := cj.Spec.JobTemplate.DeepCopy()
	zone := time.UTC
	if cj.Spec.TimeZone != nil {
		if named, err := time.LoadLocation(*cj.Spec.TimeZone); err == nil {
			zone = named
		}
	}
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cj.Namespace, Name: fmt.Sprintf("%s-%d", cj.Name, at.Unix()/60),
			Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cj, batchv1.SchemeGroupVersion.WithKind(kind))},
		},
		Spec: t.Spec,
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, batchv1.CronJobScheduledTimestampAnnotation,
		at.In(zone).Format(time.RFC3339))
	return job
}
