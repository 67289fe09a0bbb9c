package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

// Upstream's limits (pkg/apis/batch/validation) for the lists of completed and failed indexes in the status.
const (
	maxIndexedParallelism = 100_000
	maxFailedIndexes      = 100_000
	manyCompletions       = 100_000
	maxParallelismOfMany  = 10_000
	maxFailedOfMany       = 10_000
	maxManagedBy          = 63
)

func jobValidate(next, cur kind.Object, subresource string) field.ErrorList {
	job := next.(*batchv1.Job)
	if subresource == "status" {
		return jobStatus(job, cur.(*batchv1.Job), field.NewPath("status"))
	}
	path := field.NewPath("spec")
	errs, spec := append(jobSelected(job, path), jobSpec(&job.Spec, path)...), &job.Spec
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(errs, check.LabelSelector(path.Child("selector"), spec.Selector)...)
	}
	if s, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil &&
		!s.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	// The hostnames of an indexed job's pods consist of the job's name and the index.
	if n := spec.Completions; isIndexed(spec) && n != nil && *n > 0 {
		if last := fmt.Sprintf("%s-%d", job.Name, *n-1); len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), job.Name,
				"will not able to create pod with invalid DNS label: "+last))
		}
	}
	if cur != nil {
		errs = append(errs, jobUpdate(job, cur.(*batchv1.Job), path)...)
	}
	return errs
}

// jobSelected checks the labels and the selector that jobPrepare sets, so that no pod matches two jobs.
func jobSelected(job *batchv1.Job, path *field.Path) field.ErrorList {
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector || job.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	want := labels.Set{}
	for _, l := range []struct{ key, value string }{
		{oldUIDLabel, string(job.UID)}, {oldNameLabel, job.Name},
		{batchv1.ControllerUidLabel, string(job.UID)}, {batchv1.JobNameLabel, job.Name},
	} {
		want[l.key] = l.value
		at, set := path.Child("template", "metadata", "labels").Key(l.key), job.Spec.Template.Labels
		switch got, ok := set[l.key]; {
		case !ok:
			errs = append(errs, field.Required(at, fmt.Sprintf("must be '%s'", l.value)))
		case got != l.value:
			errs = append(errs, field.Invalid(at, set, fmt.Sprintf("must be '%s'", l.value)))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && !s.Matches(want) {
		errs = append(errs, field.Invalid(path.Child("selector"), job.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func isIndexed(spec *batchv1.JobSpec) bool {
	return spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
}

// jobSpec checks the spec of a job or of a CronJob's job template.
func jobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		check.NilOrNonNegative(path.Child("parallelism"), spec.Parallelism),
		check.NilOrNonNegative(path.Child("completions"), spec.Completions),
		check.NilOrNonNegative(path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds),
		check.NilOrNonNegative(path.Child("backoffLimit"), spec.BackoffLimit),
		check.NilOrNonNegative(path.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished),
		check.NilOrNonNegative(path.Child("backoffLimitPerIndex"), spec.BackoffLimitPerIndex),
		check.NilOrNonNegative(path.Child("maxFailedIndexes"), spec.MaxFailedIndexes),
	)
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if by, at := spec.ManagedBy, path.Child("managedBy"); by != nil {
		errs = append(errs, validation.IsDomainPrefixedPath(at, *by)...)
		if len(*by) > maxManagedBy {
			errs = append(errs, field.TooLong(at, *by, maxManagedBy))
		}
	}
	errs = append(errs, check.NilOr(path.Child("completionMode"), spec.CompletionMode, batchv1.NonIndexedCompletion,
		batchv1.IndexedCompletion)...)
	switch mode := spec.CompletionMode; {
	case isIndexed(spec):
		errs = append(errs, jobIndexed(spec, path)...)
	case mode == nil || *mode == batchv1.NonIndexedCompletion:
		if n := spec.BackoffLimitPerIndex; n != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *n, "requires indexed completion mode"))
		}
		if n := spec.MaxFailedIndexes; n != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, "requires indexed completion mode"))
		}
	}
	errs = append(errs, jobPolicies(spec, path)...)
	errs = append(errs, pod.ValidateTemplate(&spec.Template, path.Child("template"))...)
	return append(errs, jobRestartPolicy(spec, path.Child("template", "spec", "restartPolicy"))...)
}

func jobIndexed(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	failed := path.Child("maxFailedIndexes")
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	errs = append(errs,
		notAbove(path.Child("parallelism"), spec.Parallelism, maxIndexedParallelism, " when completion mode is Indexed")...)
	if n, of := spec.MaxFailedIndexes, spec.Completions; n != nil && of != nil && *n > *of {
		errs = append(errs, field.Invalid(failed, *n, "must be less than or equal to completions"))
	}
	errs = append(errs, notAbove(failed, spec.MaxFailedIndexes, maxFailedIndexes, "")...)
	if spec.Completions == nil || *spec.Completions <= manyCompletions || spec.BackoffLimitPerIndex == nil {
		return errs
	}
	if spec.MaxFailedIndexes == nil {
		errs = append(errs,
			field.Required(failed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	many := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", manyCompletions)
	errs = append(errs, notAbove(path.Child("parallelism"), spec.Parallelism, maxParallelismOfMany, many)...)
	return append(errs, notAbove(failed, spec.MaxFailedIndexes, maxFailedOfMany, many)...)
}

func notAbove(path *field.Path, value *int32, limit int32, when string) field.ErrorList {
	if value == nil || *value <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be less than or equal to %d%s", limit, when))}
}

// jobRestartPolicy reports Always as a missing value, because it is the default.
func jobRestartPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	switch policy := spec.Template.Spec.RestartPolicy; {
	case policy == "" || policy == corev1.RestartPolicyAlways:
		return field.ErrorList{field.Required(path,
			fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever))}
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.NotSupported(path, policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever})}
	case spec.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.Invalid(path, policy,
			fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever))}
	}
	return nil
}
