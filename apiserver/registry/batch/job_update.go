package batch

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/check"
)

// jobUpdate finds what changed that may not change.
func jobUpdate(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	next, cur := &job.Spec, &old.Spec
	errs := jobCompletionsUpdate(next, cur, path)
	errs = append(errs, check.Immutable(path.Child("selector"), next.Selector, cur.Selector)...)
	errs = append(errs, check.Immutable(path.Child("template"), &next.Template, jobTemplateMayBe(&next.Template, old))...)
	errs = append(errs, check.Immutable(path.Child("completionMode"), next.CompletionMode, cur.CompletionMode)...)
	errs = append(errs, check.Immutable(path.Child("podFailurePolicy"), next.PodFailurePolicy, cur.PodFailurePolicy)...)
	errs = append(errs, check.Immutable(path.Child("backoffLimitPerIndex"), next.BackoffLimitPerIndex, cur.BackoffLimitPerIndex)...)
	errs = append(errs, check.Immutable(path.Child("managedBy"), next.ManagedBy, cur.ManagedBy)...)
	return append(errs, check.Immutable(path.Child("successPolicy"), next.SuccessPolicy, cur.SuccessPolicy)...)
}

// jobCompletionsUpdate lets an indexed job grow and shrink together with its
// parallelism.
func jobCompletionsUpdate(next, cur *batchv1.JobSpec, path *field.Path) field.ErrorList {
	at := path.Child("completions")
	switch {
	case !isIndexed(next):
		return check.Immutable(at, next.Completions, cur.Completions)
	case next.Completions == nil || equality.Semantic.DeepEqual(next.Completions, cur.Completions):
	case next.Parallelism == nil || *next.Completions != *next.Parallelism:
		return field.ErrorList{field.Invalid(at, *next.Completions, fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism")))}
	}
	return nil
}

// jobTemplateMayBe is the old job's template, and while the job is suspended and
// none of its pods is left, with what decides where the pods go and how much
// they get as it is in next.
func jobTemplateMayBe(next *corev1.PodTemplateSpec, old *batchv1.Job) *corev1.PodTemplateSpec {
	template := old.Spec.Template.DeepCopy()
	if !jobRests(old) {
		return template
	}
	template.Annotations, template.Labels = next.Annotations, next.Labels
	spec := &template.Spec
	spec.NodeSelector, spec.Tolerations, spec.SchedulingGates = next.Spec.NodeSelector, next.Spec.Tolerations, next.Spec.SchedulingGates
	spec.Affinity = withNodeAffinity(spec.Affinity, next.Spec.Affinity)
	takeResources(spec.Containers, next.Spec.Containers)
	takeResources(spec.InitContainers, next.Spec.InitContainers)
	return template
}

// jobRests: it is suspended, and has never run or its pods are gone again
// (upstream's MutableSchedulingDirectivesForSuspendedJobs and
// MutablePodResourcesForSuspendedJobs, on since 1.36).
func jobRests(job *batchv1.Job) bool {
	if job.Spec.Suspend == nil || !*job.Spec.Suspend {
		return false
	}
	return job.Status.StartTime == nil || hasCondition(job, batchv1.JobSuspended) && job.Status.Active == 0
}

// withNodeAffinity is old with next's affinity to nodes.
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

// takeResources gives containers what next's ask for; claims stay.
func takeResources(containers, next []corev1.Container) {
	for i := range min(len(containers), len(next)) {
		containers[i].Resources.Requests = next[i].Resources.Requests
		containers[i].Resources.Limits = next[i].Resources.Limits
	}
}
