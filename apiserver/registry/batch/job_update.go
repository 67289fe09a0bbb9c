package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// jobUpdate rejects changes of immutable fields.
func jobUpdate(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	next, cur := &job.Spec, &old.Spec
	errs := jobCompletionsUpdate(next, cur, path)
	errs = append(errs, check.Immutable(path.Child("selector"), next.Selector, cur.Selector)...)
	errs = append(errs, check.Immutable(path.Child("template"), &next.Template,
		allowedJobTemplate(&next.Template, old))...)
	errs = append(errs, check.Immutable(path.Child("completionMode"), next.CompletionMode, cur.CompletionMode)...)
	errs = append(errs, check.Immutable(path.Child("podFailurePolicy"), next.PodFailurePolicy, cur.PodFailurePolicy)...)
	errs = append(errs,
		check.Immutable(path.Child("backoffLimitPerIndex"), next.BackoffLimitPerIndex, cur.BackoffLimitPerIndex)...)
	errs = append(errs, check.Immutable(path.Child("managedBy"), next.ManagedBy, cur.ManagedBy)...)
	return append(errs, check.Immutable(path.Child("successPolicy"), next.SuccessPolicy, cur.SuccessPolicy)...)
}

// jobCompletionsUpdate allows a change of completions only for an indexed job, and only to the value of parallelism.
func jobCompletionsUpdate(next, cur *batchv1.JobSpec, path *field.Path) field.ErrorList {
	at := path.Child("completions")
	switch {
	case !isIndexed(next):
		return check.Immutable(at, next.Completions, cur.Completions)
	case next.Completions == nil || equality.Semantic.DeepEqual(next.Completions, cur.Completions):
	case next.Parallelism == nil || *next.Completions != *next.Parallelism:
		return field.ErrorList{field.Invalid(at, *next.Completions,
			fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism")))}
	}
	return nil
}

// allowedJobTemplate returns old's template with the allowed changes of next: none, or if jobTemplateMutable the
// labels, annotations, scheduling fields and resources.
func allowedJobTemplate(next *corev1.PodTemplateSpec, old *batchv1.Job) *corev1.PodTemplateSpec {
	template := old.Spec.Template.DeepCopy()
	if !jobTemplateMutable(old) {
		return template
	}
	template.Annotations, template.Labels = next.Annotations, next.Labels
	spec := &template.Spec
	spec.NodeSelector, spec.Tolerations, spec.SchedulingGates = next.Spec.NodeSelector, next.Spec.Tolerations,
		next.Spec.SchedulingGates
	spec.Affinity = withNodeAffinity(spec.Affinity, next.Spec.Affinity)
	copyResources(spec.Containers, next.Spec.Containers)
	copyResources(spec.InitContainers, next.Spec.InitContainers)
	return template
}

// jobTemplateMutable reports whether the job is suspended, and has not started or has no active pods (upstream's
// MutableSchedulingDirectivesForSuspendedJobs and MutablePodResourcesForSuspendedJobs, on since 1.36).
func jobTemplateMutable(job *batchv1.Job) bool {
	if job.Spec.Suspend == nil || !*job.Spec.Suspend {
		return false
	}
	return job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended) && job.Status.Active == 0
}

// withNodeAffinity returns old with next's node affinity.
func withNodeAffinity(old, next *corev1.Affinity) *corev1.Affinity {
	var out corev1.Affinity
	if old != nil {
		out = *old
	}
	out.NodeAffinity = nil
	if next != nil {
		out.NodeAffinity = next.NodeAffinity
	}
	if next == nil && out == (corev1.Affinity{}) {
		return nil
	}
	return &out
}

// copyResources copies next's requests and limits to containers, but not claims.
func copyResources(containers, next []corev1.Container) {
	for i := range min(len(containers), len(next)) {
		containers[i].Resources.Requests = next[i].Resources.Requests
		containers[i].Resources.Limits = next[i].Resources.Limits
	}
}
