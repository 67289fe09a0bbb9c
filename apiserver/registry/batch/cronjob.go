package batch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/apiserver/registry/pod"
)

// maxCronJobName leaves 11 characters for the suffix of a job's name: "-" and the minutes since 1970.
const maxCronJobName = validation.DNS1035LabelMaxLength - 11

func cronJobResource() kind.Resource {
	return kind.Resource{
		GVR:          client.CronJobs,
		Kind:         "CronJob",
		Controller:   "cronjob",
		Namespaced:   true,
		ShortNames:   []string{"cj"},
		Categories:   []string{"all"},
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(batchv1.CronJob) },
		Default:      cronJobDefault,
		Prepare:      cronJobPrepare,
		Validate:     cronJobValidate,
		Warnings:     cronJobWarnings,
		Columns:      cronJobColumns(),
	}
}

func cronJobHalves(obj kind.Object) (*batchv1.CronJobSpec, *batchv1.CronJobStatus) {
	c := obj.(*batchv1.CronJob)
	return &c.Spec, &c.Status
}

func cronJobColumns() []table.Column {
	suspend := table.Text("Suspend", "Whether new jobs are suspended.", func(c *batchv1.CronJob) string {
		switch s := c.Spec.Suspend; {
		case s == nil:
			return "<unset>"
		case *s:
			return "True"
		default:
			return "False"
		}
	})
	suspend.Type = "boolean" // upstream declares the text as boolean
	return pod.OwnerColumns([]table.Column{
		table.Name(),
		table.Text("Schedule", "The schedule in cron format.", func(c *batchv1.CronJob) string { return c.Spec.Schedule }),
		table.Text("Timezone", "The time zone of the schedule.", func(c *batchv1.CronJob) string {
			return ptr.Deref(c.Spec.TimeZone, table.None)
		}),
		suspend,
		table.Number("Active", "Number of running jobs.",
			func(c *batchv1.CronJob) int64 { return int64(len(c.Status.Active)) }),
		table.Timed("Last Schedule", "Time since the last job was scheduled.",
			func(c *batchv1.CronJob, now time.Time) string {
				if c.Status.LastScheduleTime == nil {
					return table.None
				}
				return table.Since(c.Status.LastScheduleTime.Time, now)
			}),
		table.Age(),
	}, func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
		func(c *batchv1.CronJob) string {
			return metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector)
		})
}

// cronJobDefault implements upstream's SetDefaults_CronJob. The job template gets its other defaults when it becomes a
// job.
func cronJobDefault(obj kind.Object) {
	spec := &obj.(*batchv1.CronJob).Spec
	kind.SetIfZero(&spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	kind.SetIfNil(&spec.Suspend, false)
	kind.SetIfNil(&spec.SuccessfulJobsHistoryLimit, 3)
	kind.SetIfNil(&spec.FailedJobsHistoryLimit, 1)
	jobSpecDefault(&spec.JobTemplate.Spec)
}

func cronJobPrepare(next, cur kind.Object, subresource string) {
	next.(*batchv1.CronJob).Spec.JobTemplate.Spec.Scheduling = nil
	kind.SpecAndStatus(cronJobHalves, cronJobDefault)(next, cur, subresource)
}

func cronJobValidate(next, cur kind.Object, subresource string) field.ErrorList {
	if subresource == "status" {
		return nil
	}
	spec, old, path := &next.(*batchv1.CronJob).Spec, &batchv1.CronJobSpec{}, field.NewPath("spec")
	if cur != nil {
		old = &cur.(*batchv1.CronJob).Spec
	}
	errs := scheduleErrors(spec, strings.Contains(old.Schedule, "TZ"), path.Child("schedule"))
	errs = append(errs, check.NilOrNonNegative(path.Child("startingDeadlineSeconds"), spec.StartingDeadlineSeconds)...)
	if zone := spec.TimeZone; zone != nil && !ptr.Equal(zone, old.TimeZone) {
		errs = append(errs, zoneErrors(*zone, path.Child("timeZone"))...)
	}
	errs = append(errs, check.OneOf(path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy,
		batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	// A job template must not have a selector, because each job gets its own.
	job, at := &spec.JobTemplate.Spec, path.Child("jobTemplate", "spec")
	errs = append(errs, jobSpec(job, at)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if job.ManualSelector != nil && *job.ManualSelector {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	errs = slices.Concat(errs,
		check.NilOrNonNegative(path.Child("successfulJobsHistoryLimit"), spec.SuccessfulJobsHistoryLimit),
		check.NilOrNonNegative(path.Child("failedJobsHistoryLimit"), spec.FailedJobsHistoryLimit))
	if name := next.GetName(); cur == nil && len(name) > maxCronJobName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name,
			fmt.Sprintf("must be no more than %d characters", maxCronJobName)))
	}
	return errs
}
