package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

// oldUIDLabel and oldNameLabel are the deprecated labels of a job's pods. As upstream, jobs still get them.
const (
	oldUIDLabel  = "controller-uid"
	oldNameLabel = "job-name"
)

func jobResource() kind.Resource {
	return kind.Resource{
		GVR:          client.Jobs,
		Kind:         "Job",
		Controller:   "job",
		Namespaced:   true,
		Categories:   []string{"all"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(batchv1.Job) },
		Default:      jobDefault,
		Prepare:      jobPrepare,
		Validate:     jobValidate,
		Warnings:     jobWarnings,
		Orphans:      true,
		OrphanWarning: "child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))}
		},
		Columns: jobColumns(),
	}
}

func jobHalves(obj kind.Object) (*batchv1.JobSpec, *batchv1.JobStatus) {
	job := obj.(*batchv1.Job)
	return &job.Spec, &job.Status
}

func jobColumns() []table.Column {
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		table.Text("Status", "The state of the job, such as Running, Complete or Failed.", jobState),
		table.Text("Completions", "Succeeded pods and required completions.", jobCompletions),
		table.Timed("Duration", "Time from start to completion, or until now.", jobDuration),
		table.Age(),
	}, func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
		func(j *batchv1.Job) string { return metav1.FormatLabelSelector(j.Spec.Selector) })
}

func jobState(job *batchv1.Job) string {
	switch {
	case hasCondition(job, batchv1.JobComplete):
		return "Complete"
	case hasCondition(job, batchv1.JobFailed):
		return "Failed"
	case job.DeletionTimestamp != nil:
		return "Terminating"
	case hasCondition(job, batchv1.JobSuspended):
		return "Suspended"
	case hasCondition(job, batchv1.JobFailureTarget):
		return "FailureTarget"
	case hasCondition(job, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// hasCondition reports whether the condition is true.
func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func jobCompletions(job *batchv1.Job) string {
	switch done, spec := job.Status.Succeeded, &job.Spec; {
	case spec.Completions != nil:
		return fmt.Sprintf("%d/%d", done, *spec.Completions)
	case spec.Parallelism != nil && *spec.Parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", done, *spec.Parallelism)
	default:
		return fmt.Sprintf("%d/1", done)
	}
}

func jobDuration(job *batchv1.Job, now time.Time) string {
	start, end := job.Status.StartTime, job.Status.CompletionTime
	switch {
	case start == nil:
		return ""
	case end != nil:
		now = end.Time
	}
	return duration.HumanDuration(now.Sub(start.Time))
}

// jobDefault implements upstream's SetDefaults_Job.
func jobDefault(obj kind.Object) {
	job := obj.(*batchv1.Job)
	spec := &job.Spec
	if spec.Completions == nil && spec.Parallelism == nil {
		spec.Completions = new(int32(1))
	}
	kind.SetIfNil(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil { // only the limit of each index applies
		kind.SetIfNil(&spec.BackoffLimit, math.MaxInt32)
	}
	kind.SetIfNil(&spec.BackoffLimit, 6)
	if len(job.Labels) == 0 {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	kind.SetIfNil(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	kind.SetIfNil(&spec.Suspend, false)
	if spec.PodFailurePolicy != nil { // the policy evaluates the final state of a pod
		kind.SetIfNil(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	kind.SetIfNil(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	kind.SetIfNil(&spec.ManualSelector, false)
	jobSpecDefault(spec)
}

// jobSpecDefault sets the defaults that jobs and the job templates of CronJobs have in common.
func jobSpecDefault(spec *batchv1.JobSpec) {
	pod.DefaultTemplate(&spec.Template)
	if spec.PodFailurePolicy == nil {
		return
	}
	for i := range spec.PodFailurePolicy.Rules {
		patterns := spec.PodFailurePolicy.Rules[i].OnPodConditions
		for j := range patterns {
			kind.SetIfZero(&patterns[j].Status, corev1.ConditionTrue)
		}
	}
}

// jobPrepare labels the pods of a new job with its name and UID and selects them by the UID, unless manualSelector is
// set. It keeps values that the client set; validation rejects different ones. It drops the field scheduling, whose
// feature gate is alpha and off.
func jobPrepare(next, cur kind.Object, subresource string) {
	job := next.(*batchv1.Job)
	job.Spec.Scheduling = nil
	if cur == nil && (job.Spec.ManualSelector == nil || !*job.Spec.ManualSelector) {
		inherits := maps.Equal(job.Labels, job.Spec.Template.Labels)
		set := func(at *map[string]string, key, value string) {
			if *at == nil {
				*at = map[string]string{}
			}
			if _, taken := (*at)[key]; !taken {
				(*at)[key] = value
			}
		}
		for _, key := range []string{oldNameLabel, batchv1.JobNameLabel} {
			set(&job.Spec.Template.Labels, key, job.Name)
		}
		for _, key := range []string{oldUIDLabel, batchv1.ControllerUidLabel} {
			set(&job.Spec.Template.Labels, key, string(job.UID))
		}
		kind.SetIfNil(&job.Spec.Selector, metav1.LabelSelector{})
		set(&job.Spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(job.UID))
		if inherits { // a selector by default must include the new labels
			job.Labels = nil
		}
	}
	kind.SpecAndStatus(jobHalves, jobDefault)(next, cur, subresource)
}
