package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/batch"
	"monopod/apiserver/kit/check"
)

// jobStatus checks a status, which an external controller may have written (spec.managedBy). A rule that a change of
// the spec can violate applies only when its part of the status changes.
func jobStatus(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	status := &job.Status
	errs := slices.Concat(
		check.Counts(path, check.Count{Name: "active", Value: int64(status.Active)},
			check.Count{Name: "succeeded", Value: int64(status.Succeeded)},
			check.Count{Name: "failed", Value: int64(status.Failed)}),
		check.NilOrNonNegative(path.Child("ready"), status.Ready),
		check.NilOrNonNegative(path.Child("terminating"), status.Terminating))
	if status.Ready != nil && *status.Ready > status.Active {
		errs = append(errs, field.Invalid(path.Child("ready"), *status.Ready, "cannot set more ready pods than active"))
	}
	return slices.Concat(errs,
		jobUncounted(job.Status.UncountedTerminatedPods, path.Child("uncountedTerminatedPods")),
		jobEnd(job, old, path),
		jobTimes(job, old, path),
		jobIndexLists(job, old, path),
		jobConditions(job, path.Child("conditions")),
		jobProgress(job, old, path),
	)
}

func jobUncounted(u *batchv1.UncountedTerminatedPods, path *field.Path) field.ErrorList {
	if u == nil {
		return nil
	}
	var errs field.ErrorList
	seen := map[types.UID]bool{}
	list := func(uids []types.UID, at *field.Path) {
		for i, uid := range uids {
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at.Index(i), uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at.Index(i), uid))
			}
			seen[uid] = true
		}
	}
	list(u.Succeeded, path.Child("succeeded"))
	list(u.Failed, path.Child("failed"))
	return errs
}

func jobFinished(job *batchv1.Job) bool {
	return hasCondition(job, batchv1.JobComplete) || hasCondition(job, batchv1.JobFailed)
}

// jobEnd checks that a finished job has a start time and no active pods.
func jobEnd(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	if !jobFinished(job) {
		return nil
	}
	var errs field.ErrorList
	status, ended := &job.Status, !jobFinished(old)
	if status.Active > 0 && (ended || status.Active != old.Status.Active) {
		errs = append(errs, field.Invalid(path.Child("active"), status.Active, "active>0 is invalid for finished job"))
	}
	if status.StartTime == nil && (ended || old.Status.StartTime != nil) {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime is required for finished job"))
	}
	u := status.UncountedTerminatedPods
	if left := u != nil && len(u.Failed)+len(u.Succeeded) > 0; left &&
		(ended || !equality.Semantic.DeepEqual(u, old.Status.UncountedTerminatedPods)) {
		errs = append(errs, field.Invalid(path.Child("uncountedTerminatedPods"), u,
			"uncountedTerminatedPods needs to be empty for finished job"))
	}
	if n := status.Terminating; n != nil && *n > 0 && ended {
		errs = append(errs, field.Invalid(path.Child("terminating"), *n, "terminating>0 is invalid for finished job"))
	}
	return errs
}

func jobTimes(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("completionTime")
	start, end := job.Status.StartTime, job.Status.CompletionTime
	complete := hasCondition(job, batchv1.JobComplete)
	moved := !end.Equal(old.Status.CompletionTime)
	if moved || complete != hasCondition(old, batchv1.JobComplete) {
		if end != nil && !complete {
			errs = append(errs, field.Invalid(at, end, "cannot set completionTime when there is no Complete=True condition"))
		}
		if end == nil && complete {
			errs = append(errs, field.Required(at, "completionTime is required for Complete jobs"))
		}
	}
	if startMoved := !start.Equal(old.Status.StartTime); (moved || startMoved) && start != nil && end != nil &&
		end.Before(start) {
		errs = append(errs, field.Invalid(at, end, "completionTime cannot be set before startTime"))
	}
	if moved && end != nil && old.Status.CompletionTime != nil {
		errs = append(errs, field.Invalid(at, end, "completionTime cannot be mutated"))
	}
	// startTime can change if the job is suspended, or when the change resumes it.
	was, suspended := old.Status.StartTime, job.Spec.Suspend != nil && *job.Spec.Suspend
	resumed := start != nil && hasCondition(old, batchv1.JobSuspended) && !hasCondition(job, batchv1.JobSuspended)
	if was != nil && !start.Equal(was) && !suspended && !resumed {
		errs = append(errs, field.Required(path.Child("startTime"), "startTime cannot be removed for unsuspended job"))
	}
	return errs
}

func jobIndexLists(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	done, lost := path.Child("completedIndexes"), path.Child("failedIndexes")
	status, spec := &job.Status, &job.Spec
	doneChanged := status.CompletedIndexes != old.Status.CompletedIndexes
	lostChanged := !ptr.Equal(status.FailedIndexes, old.Status.FailedIndexes)
	completed, doneErr := indexesBelow(spec, &status.CompletedIndexes)
	failed, lostErr := indexesBelow(spec, status.FailedIndexes)
	if doneChanged && doneErr != nil {
		errs = append(errs,
			field.Invalid(done, status.CompletedIndexes, fmt.Sprintf("error parsing completedIndexes: %v", doneErr)))
	}
	if lostChanged && lostErr != nil && spec.BackoffLimitPerIndex != nil {
		errs = append(errs,
			field.Invalid(lost, *status.FailedIndexes, fmt.Sprintf("error parsing failedIndexes: %v", lostErr)))
	}
	if doneChanged && status.CompletedIndexes != "" && !isIndexed(spec) {
		errs = append(errs, field.Invalid(done, status.CompletedIndexes,
			"cannot set non-empty completedIndexes when non-indexed completion mode"))
	}
	if lostChanged && status.FailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs,
			field.Invalid(lost, *status.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null"))
	}
	if at, both := completed.Overlap(failed); both && (doneChanged || lostChanged) {
		errs = append(errs, field.Invalid(lost, *status.FailedIndexes,
			fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", at)))
	}
	return errs
}

// indexesBelow parses a list of the job's indexes. It returns nil without a list or without completions.
func indexesBelow(spec *batchv1.JobSpec, text *string) (batch.Indexes, error) {
	if text == nil || spec.Completions == nil {
		return nil, nil
	}
	return batch.ParseIndexes(*text, *spec.Completions)
}

// jobConditions rejects contradictory conditions.
func jobConditions(job *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	complete, failed := hasCondition(job, batchv1.JobComplete), hasCondition(job, batchv1.JobFailed)
	target, met := hasCondition(job, batchv1.JobFailureTarget), hasCondition(job, batchv1.JobSuccessCriteriaMet)
	for _, c := range []struct {
		wrong   bool
		message string
	}{
		{complete && failed, "cannot set Complete=True and Failed=true conditions"},
		{complete && target, "cannot set Complete=True and FailureTarget=true conditions"},
		{met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"},
		{met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
		{job.Spec.SuccessPolicy != nil && complete && !met,
			"cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"},
	} {
		if c.wrong {
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, c.message))
		}
	}
	return errs
}

// jobProgress checks that terminal conditions stay true and counts do not decrease. Only an indexed job with
// completions equal to parallelism can shrink, which decreases succeeded.
func jobProgress(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	conditions := path.Child("conditions")
	for _, c := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		if hasCondition(old, c) && !hasCondition(job, c) {
			errs = append(errs,
				field.Invalid(conditions, field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", c)))
		}
	}
	if job.Status.Failed < old.Status.Failed {
		errs = append(errs, field.Invalid(path.Child("failed"), job.Status.Failed, "cannot decrease the failed counter"))
	}
	elastic := isIndexed(&job.Spec) && ptr.Equal(job.Spec.Completions, job.Spec.Parallelism)
	if job.Status.Succeeded < old.Status.Succeeded && !elastic {
		errs = append(errs,
			field.Invalid(path.Child("succeeded"), job.Status.Succeeded, "cannot decrease the succeeded counter"))
	}
	was, is := hasCondition(old, batchv1.JobSuccessCriteriaMet), hasCondition(job, batchv1.JobSuccessCriteriaMet)
	if was && !is {
		errs = append(errs,
			field.Invalid(conditions, field.OmitValueType{}, "cannot disable the SuccessCriteriaMet=True condition"))
	}
	if !was && is && hasCondition(old, batchv1.JobComplete) {
		errs = append(errs, field.Invalid(conditions, field.OmitValueType{},
			"cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"))
	}
	return errs
}
