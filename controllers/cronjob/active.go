package cronjob

import (
	"cmp"
	"context"
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/controllers/owned"
)

// ended returns Complete or Failed for a Job that has ended, otherwise "".
func ended(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// updateActive updates the status: the active Jobs and the last success.
func (r *run) updateActive(st *syncState) {
	s, known := &st.cj.Status, map[types.UID]bool{}
	for _, job := range st.jobs {
		known[job.UID] = true
		end := ended(job)
		switch active := st.listsActive(job.UID); {
		case active && end != "":
			st.unlist(job.UID)
			r.normal(st, "SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, end)
		case !active && end == "":
			r.warn(st, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
		}
		if at := job.Status.CompletionTime; end == batchv1.JobComplete && at != nil &&
			(s.LastSuccessfulTime == nil || at.After(s.LastSuccessfulTime.Time)) {
			s.LastSuccessfulTime = at
		}
	}
	for _, ref := range slices.Clone(s.Active) {
		if !known[ref.UID] {
			st.unlist(ref.UID)
			r.normal(st, "MissingJob", "Active job went missing: %v", ref.Name)
		}
	}
}

// listsActive reports whether the status lists the Job as active.
func (st *syncState) listsActive(job types.UID) bool {
	return slices.ContainsFunc(st.cj.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job })
}

func (st *syncState) unlist(job types.UID) {
	st.cj.Status.Active = slices.DeleteFunc(st.cj.Status.Active,
		func(ref corev1.ObjectReference) bool { return ref.UID == job })
}

// cleanUp deletes the oldest ended Jobs beyond the limits of the two histories.
func (r *run) cleanUp(ctx context.Context, st *syncState) error {
	if st.cj.DeletionTimestamp != nil {
		return nil
	}
	var errs []error
	for end, limit := range map[batchv1.JobConditionType]*int32{
		batchv1.JobComplete: st.cj.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: st.cj.Spec.FailedJobsHistoryLimit,
	} {
		jobs := slices.DeleteFunc(slices.Clone(st.jobs), func(job *batchv1.Job) bool { return ended(job) != end })
		if limit == nil || len(jobs) <= int(*limit) {
			continue
		}
		slices.SortFunc(jobs, byStart)
		for _, job := range jobs[:len(jobs)-int(*limit)] {
			if job.DeletionTimestamp == nil {
				errs = append(errs, r.delete(ctx, st, job))
			}
		}
	}
	return errors.Join(errs...)
}

// byStart orders Jobs by start time; Jobs that have not started come last.
func byStart(a, b *batchv1.Job) int {
	switch x, y := a.Status.StartTime, b.Status.StartTime; {
	case x == nil && y != nil:
		return 1
	case x != nil && y == nil:
		return -1
	case x != nil && !x.Equal(y):
		return x.Compare(y.Time)
	}
	return cmp.Compare(a.Name, b.Name)
}

// delete deletes a Job; the garbage collector deletes its pods.
func (r *run) delete(ctx context.Context, st *syncState, job *batchv1.Job) error {
	_, err := r.deps.Client.Delete(ctx, client.RefOf(job), metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(job.UID)),
	})
	switch {
	case owned.Gone(err):
		return nil
	case err != nil:
		r.warn(st, "FailedDelete", "Deleted job: %v", err)
		return err
	}
	r.normal(st, "SuccessfulDelete", "Deleted job %v", job.Name)
	return nil
}
