package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// jobUpdate rejects changes of immutable fields. completions of an indexed job may change to the value of parallelism.
func jobUpdate(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	next, cur := &job.Spec, &old.Spec
	var errs field.ErrorList
	switch at := path.Child("completions"); {
	case !isIndexed(next):
		errs = check.Immutable(at, next.Completions, cur.Completions)
	case next.Completions == nil || equality.Semantic.DeepEqual(next.Completions, cur.Completions):
	case next.Parallelism == nil || *next.Completions != *next.Parallelism:
		errs = append(errs, field.Invalid(at, *next.Completions,
			fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism"))))
	}
	return slices.Concat(errs,
		check.Immutable(path.Child("selector"), next.Selector, cur.Selector),
		check.Immutable(path.Child("template"), &next.Template, allowedJobTemplate(&next.Template, old)),
		check.Immutable(path.Child("completionMode"), next.CompletionMode, cur.CompletionMode),
		check.Immutable(path.Child("podFailurePolicy"), next.PodFailurePolicy, cur.PodFailurePolicy),
		check.Immutable(path.Child("backoffLimitPerIndex"), next.BackoffLimitPerIndex, cur.BackoffLimitPerIndex),
		check.Immutable(path.Child("managedBy"), next.ManagedBy, cur.ManagedBy),
		check.Immutable(path.Child("successPolicy"), next.SuccessPolicy, cur.SuccessPolicy))
}

// allowedJobTemplate returns old's template with the allowed changes of next. If the job is suspended, and has not
// started or has no active pods, these are the labels, annotations, scheduling fields and resources (upstream's
// MutableSchedulingDirectivesForSuspendedJobs and MutablePodResourcesForSuspendedJobs, on since 1.36).
func allowedJobTemplate(next *corev1.PodTemplateSpec, old *batchv1.Job) *corev1.PodTemplateSpec {
	template := old.Spec.Template.DeepCopy()
	if old.Spec.Suspend == nil || !*old.Spec.Suspend ||
		old.Status.StartTime != nil && (!hasCondition(old, batchv1.JobSuspended) || old.Status.Active != 0) {
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
