package batch

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/pod"
)

func jobWarnings(next, cur kind.Object) []string {
	return specWarnings(next, cur, &next.(*batchv1.Job).Spec, field.NewPath("spec"))
}

func cronJobWarnings(next, cur kind.Object) []string {
	spec := &next.(*batchv1.CronJob).Spec
	warnings := specWarnings(next, cur, &spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))
	if strings.Contains(spec.Schedule, "TZ") {
		warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.schedule, use timeZone instead, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return warnings
}

// specWarnings returns warnings about the name of a new object, and about the job's spec at path if the spec is new or
// changed.
func specWarnings(next, cur kind.Object, spec *batchv1.JobSpec, path *field.Path) []string {
	if cur != nil && next.GetGeneration() == cur.GetGeneration() {
		return nil
	}
	var warnings []string
	if cur == nil {
		warnings = check.NameWarnings(next.GetName())
	}
	if isIndexed(spec) && above(spec.Completions, manyCompletions) && above(spec.Parallelism, maxParallelismOfMany) {
		warnings = append(warnings, path.String()+
			": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
			"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	template := &spec.Template
	return append(warnings, pod.Warnings(path.Child("template"), &template.ObjectMeta, &template.Spec)...)
}

func above(n *int32, limit int32) bool { return n != nil && *n > limit }
