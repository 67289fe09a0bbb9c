package batch_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"monopod/apiserver/registry/batch"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

const (
	job = `{metadata: {name: x, uid: u}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, ` +
		`image: d}]}}}}`
	indexed = `{metadata: {name: x, uid: u}, spec: {completionMode: Indexed, completions: 5, parallelism: 2, ` +
		`backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: d}]}}}}`
	cronJob = `{metadata: {name: x}, spec: {schedule: '*/5 * * * *', ` +
		`jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, containers: [{name: c, image: d}]}}}}}}`
)

// lines splits the expected errors; an empty text means none.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestJobs(t *testing.T) {
	t.Parallel()
	const onExit = "onExitCodes: {operator: In, values: [1]}"
	policy := func(rule string) string {
		return "spec: {podFailurePolicy: {rules: [{" + rule + "}]}, template"
	}
	success := func(rules string) string { return "parallelism: 2, successPolicy: {rules: " + rules + "}" }
	for _, c := range []struct{ text, old, new, want string }{
		{job, "", "", ""},
		{indexed, "", "", ""},
		{job, "spec: {template",
			"spec: {parallelism: -1, completions: -1, activeDeadlineSeconds: -1, backoffLimit: -1, " +
				"ttlSecondsAfterFinished: -1, template",
			"spec.parallelism: Invalid value\nspec.completions: Invalid value\nspec.activeDeadlineSeconds: Invalid value\n" +
				"spec.backoffLimit: Invalid value\nspec.ttlSecondsAfterFinished: Invalid value"},
		{job, "restartPolicy: Never, ", "", "spec.template.spec.restartPolicy: Required value"},
		{job, "Never", "Always", "spec.template.spec.restartPolicy: Required value"},
		{job, "Never", "Sometimes",
			"spec.template.spec.restartPolicy: Unsupported value\nspec.template.spec.restartPolicy: Unsupported value"},
		{job, "image: d", "image: ''", "spec.template.spec.containers[0].image: Required value"},
		{job, "spec: {template", "spec: {completionMode: Random, template", "spec.completionMode: Unsupported value"},
		{job, "spec: {template", "spec: {backoffLimitPerIndex: 1, template", "spec.backoffLimitPerIndex: Invalid value"},
		{job, "spec: {template", "spec: {maxFailedIndexes: 1, template",
			"spec.backoffLimitPerIndex: Required value\nspec.maxFailedIndexes: Invalid value"},
		{job, "spec: {template", "spec: {managedBy: nodomain, template", "spec.managedBy: Invalid value"},
		{job, "spec: {template", "spec: {managedBy: example.com/" + strings.Repeat("x", 60) + ", template",
			"spec.managedBy: Too long"},
		{job, "spec: {template", "spec: {podReplacementPolicy: Never, template",
			"spec.podReplacementPolicy: Unsupported value"},
		{job, "spec: {template", "spec: {successPolicy: {rules: [{succeededCount: 1}]}, template",
			"spec.successPolicy: Invalid value"},
		{job, "spec: {template", "spec: {manualSelector: true, template",
			"spec.selector: Required value\nspec.template.metadata.labels: Invalid value"},
		{job, "spec: {template", "spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template",
			"spec.template.metadata.labels: Invalid value"},
		{job, "spec: {template", "spec: {selector: {matchLabels: {a: b}}, template",
			"spec.selector: Invalid value\nspec.template.metadata.labels: Invalid value"},
		{job, "template: {spec", "template: {metadata: {labels: {job-name: other}}, spec",
			"spec.template.metadata.labels[job-name]: Invalid value"},
		{job, "template: {spec", "template: {metadata: {labels: {batch.kubernetes.io/controller-uid: other}}, spec",
			"spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Invalid value\n" +
				"spec.template.metadata.labels: Invalid value"},

		{indexed, "completions: 5, ", "", "spec.completions: Required value"},
		{indexed, "parallelism: 2", "parallelism: 100001", "spec.parallelism: Invalid value"},
		{indexed, "parallelism: 2", "maxFailedIndexes: 6", "spec.maxFailedIndexes: Invalid value"},
		{indexed, "completions: 5", "completions: 100001", "spec.maxFailedIndexes: Required value"},
		{indexed, "completions: 5, parallelism: 2", "completions: 100002, parallelism: 10001, maxFailedIndexes: 10001",
			"spec.parallelism: Invalid value\nspec.maxFailedIndexes: Invalid value"},
		{indexed, "completions: 5, parallelism: 2", "completions: 200002, maxFailedIndexes: 100001",
			"spec.maxFailedIndexes: Invalid value\nspec.maxFailedIndexes: Invalid value"},
		{indexed, "name: x,", "name: " + strings.Repeat("x", 62) + ",", "metadata.name: Invalid value"},
		{indexed, "parallelism: 2", success("[]"), "spec.successPolicy.rules: Required value"},
		{indexed, "parallelism: 2", success("[{}]"), "spec.successPolicy.rules[0]: Required value"},
		{indexed, "parallelism: 2", success("[{succeededCount: 6}]"),
			"spec.successPolicy.rules[0].succeededCount: Invalid value"},
		{indexed, "parallelism: 2", success("[{succeededCount: -1}]"),
			"spec.successPolicy.rules[0].succeededCount: Invalid value"},
		{indexed, "parallelism: 2", success("[{succeededIndexes: '0-1,4', succeededCount: 3}]"), ""},
		{indexed, "parallelism: 2", success("[{succeededIndexes: '0-1', succeededCount: 3}]"),
			"spec.successPolicy.rules[0].succeededCount: Invalid value"},
		{indexed, "parallelism: 2", success("[{succeededIndexes: '3-1'}]"),
			"spec.successPolicy.rules[0].succeededIndexes: Invalid value"},
		{indexed, "parallelism: 2", success("[" + strings.Repeat("{succeededCount: 1},", 20) + "{succeededCount: 1}]"),
			"spec.successPolicy.rules: Too many"},
		{indexed, "completions: 5, parallelism: 2", success("[{succeededCount: 6}]"), "spec.completions: Required value"},

		{job, "spec: {template", policy("action: Ignore, " + onExit), ""},
		{job, "spec: {template", policy(onExit), "spec.podFailurePolicy.rules[0].action: Required value"},
		{job, "spec: {template", policy("action: Explode, " + onExit),
			"spec.podFailurePolicy.rules[0].action: Unsupported value"},
		{job, "spec: {template", policy("action: FailIndex, " + onExit),
			"spec.podFailurePolicy.rules[0].action: Invalid value"},
		{job, "spec: {template", policy("action: Ignore"), "spec.podFailurePolicy.rules[0]: Invalid value"},
		{job, "spec: {template", policy("action: Ignore, onPodConditions: [{type: a}], " + onExit),
			"spec.podFailurePolicy.rules[0]: Invalid value"},
		{job, "spec: {template", policy("action: Ignore, onPodConditions: [{type: 'a b', status: Maybe}]"),
			"spec.podFailurePolicy.rules[0].onPodConditions[0].type: Invalid value\n" +
				"spec.podFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value"},
		{job, "spec: {template", policy("action: Ignore, onExitCodes: {values: []}"),
			"spec.podFailurePolicy.rules[0].onExitCodes.operator: Required value\n" +
				"spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value"},
		{job, "spec: {template", policy("action: Ignore, onExitCodes: {operator: In, values: [0]}"),
			"spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value"},
		{job, "spec: {template", policy("action: Ignore, onExitCodes: {operator: NotIn, values: [3, 1, 1]}"),
			"spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value\n" +
				"spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value"},
		{job, "spec: {template", policy("action: Ignore, onExitCodes: {operator: In, values: [1], containerName: other}"),
			"spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value"},
		{job, "spec: {template: {spec: {restartPolicy: Never", policy("action: Ignore, "+onExit) +
			": {spec: {restartPolicy: OnFailure", "spec.template.spec.restartPolicy: Invalid value"},
		{job, "spec: {template",
			"spec: {podReplacementPolicy: TerminatingOrFailed, podFailurePolicy: {rules: [{action: Ignore, " + onExit +
				"}]}, template", "spec.podReplacementPolicy: Unsupported value"},
	} {
		t.Run(c.new, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, batch.Resources(), "Job")
			obj := kindtest.Create(t, r, kindtest.With(t, c.text, c.old, c.new))
			kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), lines(c.want)...)
		})
	}
}

func TestCronJobs(t *testing.T) {
	t.Parallel()
	zone := func(name string) string { return "spec: {timeZone: '" + name + "', schedule" }
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"*/5 * * * *", "@every 1h", ""},
		{"*/5 * * * *", "", "spec.schedule: Required value"},
		{"*/5 * * * *", "whenever", "spec.schedule: Invalid value"},
		{"*/5 * * * *", "61 * * * *", "spec.schedule: Invalid value"},
		{"*/5 * * * *", "* * * * * *", "spec.schedule: Invalid value"},
		{"*/5 * * * *", "TZ=UTC * * * * *", "spec.schedule: Invalid value"},
		{"*/5 * * * *", "CRON_TZ=UTC", "spec.schedule: Invalid value\nspec.schedule: Invalid value"},
		{"*/5 * * * *", "TZ=0", "spec.schedule: Invalid value\nspec.schedule: Invalid value"},
		{"spec: {schedule", zone("Europe/Berlin"), ""},
		{"spec: {schedule", zone(""), "spec.timeZone: Invalid value"},
		{"spec: {schedule", zone("Europe/Atlantis"), "spec.timeZone: Invalid value"},
		{"spec: {schedule", zone("../../etc/passwd"), "spec.timeZone: Invalid value"},
		{"spec: {schedule", zone("Europe//Berlin"), "spec.timeZone: Invalid value"},
		{"spec: {schedule", zone("a b"), "spec.timeZone: Invalid value"},
		{"spec: {schedule", zone("Local"), "spec.timeZone: Invalid value"},
		{"spec: {schedule",
			"spec: {startingDeadlineSeconds: -1, successfulJobsHistoryLimit: -1, failedJobsHistoryLimit: -1, schedule",
			"spec.startingDeadlineSeconds: Invalid value\nspec.successfulJobsHistoryLimit: Invalid value\n" +
				"spec.failedJobsHistoryLimit: Invalid value"},
		{"spec: {schedule", "spec: {concurrencyPolicy: Queue, schedule", "spec.concurrencyPolicy: Unsupported value"},
		{"jobTemplate: {spec: {", "jobTemplate: {spec: {selector: {matchLabels: {a: b}}, manualSelector: true, ",
			"spec.jobTemplate.spec.selector: Invalid value\nspec.jobTemplate.spec.manualSelector: Unsupported value"},
		{"jobTemplate: {spec: {", "jobTemplate: {spec: {parallelism: -1, ",
			"spec.jobTemplate.spec.parallelism: Invalid value"},
		{"restartPolicy: OnFailure, ", "", "spec.jobTemplate.spec.template.spec.restartPolicy: Required value"},
		{"image: d", "image: ''", "spec.jobTemplate.spec.template.spec.containers[0].image: Required value"},
		{"name: x", "name: " + strings.Repeat("x", 53), "metadata.name: Invalid value"},
	} {
		t.Run(c.new, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, batch.Resources(), "CronJob")
			obj := kindtest.Create(t, r, kindtest.With(t, cronJob, c.old, c.new))
			kindtest.WantErrors(t, kindtest.Validate(r, obj, nil, ""), lines(c.want)...)
		})
	}
}

func TestJobUpdates(t *testing.T) {
	t.Parallel()
	const template = "spec.template: Invalid value"
	for _, c := range []struct{ text, old, new, want string }{
		{job, "image: d", "image: e", template},
		{job, "spec: {template", "spec: {completions: 3, template", "spec.completions: Invalid value"},
		{job, "spec: {template",
			"spec: {parallelism: 3, completions: 1, suspend: true, backoffLimit: 2, activeDeadlineSeconds: 9, " +
				"ttlSecondsAfterFinished: 1, template", ""},
		{job, "spec: {template", "spec: {managedBy: example.com/a, template", "spec.managedBy: Invalid value"},
		{job, "spec: {template",
			"spec: {podFailurePolicy: {rules: [{action: Ignore, onExitCodes: {operator: In, values: [1]}}]}, template",
			"spec.podFailurePolicy: Invalid value"},
		{job, "template: {spec: {", "template: {spec: {nodeSelector: {a: b}, ", template},
		{indexed, "completions: 5, parallelism: 2", "completions: 3, parallelism: 3", ""},
		{indexed, "completions: 5, parallelism: 2", "completions: 3, parallelism: 2", "spec.completions: Invalid value"},
		{indexed, "backoffLimitPerIndex: 1", "backoffLimitPerIndex: 2", "spec.backoffLimitPerIndex: Invalid value"},
		{indexed, "backoffLimitPerIndex: 1", "backoffLimitPerIndex: 1, successPolicy: {rules: [{succeededCount: 1}]}",
			"spec.successPolicy: Invalid value"},
	} {
		t.Run(c.new, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, batch.Resources(), "Job")
			cur := kindtest.Create(t, r, c.text)
			next := update(t, r, cur, kindtest.With(t, c.text, c.old, c.new))
			kindtest.WantErrors(t, kindtest.Validate(r, next, cur, ""), lines(c.want)...)
		})
	}
}

// update returns an update by a client that read the job: it has the generated
// selector and labels.
func update(t *testing.T, r kind.Resource, cur kind.Object, text string) kind.Object {
	t.Helper()
	next, old := kindtest.Update(t, r, cur, text, "").(*batchv1.Job), cur.(*batchv1.Job)
	next.Spec.Selector, next.Labels = old.Spec.Selector, old.Labels
	if next.Spec.Template.Labels == nil {
		next.Spec.Template.Labels = map[string]string{}
	}
	for k, v := range old.Spec.Template.Labels {
		next.Spec.Template.Labels[k] = v
	}
	return next
}

// A suspended job without active pods accepts new scheduling fields and resources.
func TestSuspendedJobsMayChangeScheduling(t *testing.T) {
	t.Parallel()
	suspended := kindtest.With(t, job, "spec: {template", "spec: {suspend: true, template")
	moves := map[string]string{
		"nodeSelector": kindtest.With(t, suspended, "restartPolicy", "nodeSelector: {a: b}, restartPolicy"),
		"tolerations": kindtest.With(t, suspended, "restartPolicy",
			"tolerations: [{key: a, operator: Exists}], restartPolicy"),
		"gates": kindtest.With(t, suspended, "restartPolicy", "schedulingGates: [{name: a/b}], restartPolicy"),
		"affinity": kindtest.With(t, suspended, "restartPolicy",
			"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "+
				"[{matchExpressions: [{key: a, operator: Exists}]}]}}}, restartPolicy"),
		"labels": kindtest.With(t, suspended, "template: {spec",
			"template: {metadata: {labels: {a: b}, annotations: {c: d}}, spec"),
		"resources": kindtest.With(t, suspended, "image: d", "image: d, resources: {requests: {cpu: 1}, limits: {cpu: 2}}"),
		"and start": kindtest.With(t, job, "restartPolicy", "nodeSelector: {a: b}, restartPolicy"),
	}
	started := func(active int32, condition bool) batchv1.JobStatus {
		s := batchv1.JobStatus{StartTime: new(metav1Now()), Active: active}
		if condition {
			s.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "True"}}
		}
		return s
	}
	r := kindtest.Of(t, batch.Resources(), "Job")
	for name, text := range moves {
		for _, c := range []struct {
			status batchv1.JobStatus
			may    bool
		}{{batchv1.JobStatus{}, true}, {started(0, true), true}, {started(1, true), false}, {started(0, false), false}} {
			cur := kindtest.Create(t, r, suspended)
			cur.(*batchv1.Job).Status = c.status
			errs := kindtest.Validate(r, update(t, r, cur, text), cur, "")
			if c.may != (len(errs) == 0) {
				t.Errorf("%s with %+v: %v", name, c.status, errs)
			}
		}
	}
	cur := kindtest.Create(t, r, suspended)
	kindtest.WantErrors(t, kindtest.Validate(r, update(t, r, cur, kindtest.With(t, suspended, "image: d", "image: e")),
		cur, ""), "spec.template: Invalid value")
}

func TestJobStatuses(t *testing.T) {
	t.Parallel()
	const complete = "{type: SuccessCriteriaMet, status: 'True'}, {type: Complete, status: 'True'}"
	const start, end = "startTime: '2026-01-01T10:00:00Z'", "completionTime: '2026-01-01T11:00:00Z'"
	for _, c := range []struct{ text, old, next, want string }{
		{job, "{}", "{active: 1, ready: 1, " + start + "}", ""},
		{job, "{}", "{active: -1, succeeded: -1, failed: -1, terminating: -1}",
			"status.active: Invalid value\nstatus.succeeded: Invalid value\nstatus.failed: Invalid value\n" +
				"status.terminating: Invalid value\n" +
				"status.failed: Invalid value\nstatus.succeeded: Invalid value"},
		{job, "{}", "{ready: 1}", "status.ready: Invalid value"},
		{job, "{}", "{uncountedTerminatedPods: {succeeded: [a, ''], failed: [a]}}",
			"status.uncountedTerminatedPods.succeeded[1]: Invalid value\nstatus.uncountedTerminatedPods.failed[0]: Duplicate " +
				"value"},
		{job, "{}", "{" + start + ", " + end + ", conditions: [" + complete + "]}", ""},
		{job, "{}", "{conditions: [" + complete + "]}",
			"status.startTime: Required value\nstatus.completionTime: Required value"},
		{job, "{}", "{" + start + ", " + end + ", active: 1, terminating: 1, uncountedTerminatedPods: {failed: [a]}, " +
			"conditions: [" + complete + "]}",
			"status.active: Invalid value\nstatus.uncountedTerminatedPods: Invalid value\nstatus.terminating: Invalid value"},
		{job, "{}", "{" + start + ", " + end + "}", "status.completionTime: Invalid value"},
		{job, "{}", "{startTime: '2026-01-01T12:00:00Z', " + end + ", conditions: [" + complete + "]}",
			"status.completionTime: Invalid value"},
		{job, "{" + start + ", " + end + ", conditions: [" + complete + "]}", "{" + start +
			", completionTime: '2026-01-01T11:30:00Z', conditions: [" + complete + "]}", "status.completionTime: Invalid value"},
		{job, "{" + start + "}", "{}", "status.startTime: Required value"},
		{job, "{}", "{" + start + ", " + end + ", conditions: [" + complete + ", {type: Failed, status: 'True'}]}",
			"status.conditions: Invalid value\nstatus.conditions: Invalid value"},
		{job, "{}", "{conditions: [{type: SuccessCriteriaMet, status: 'True'}, {type: FailureTarget, status: 'True'}]}",
			"status.conditions: Invalid value"},
		{job, "{" + start + ", conditions: [{type: Failed, status: 'True'}]}", "{" + start + "}",
			"status.conditions: Invalid value"},
		{job, "{conditions: [{type: SuccessCriteriaMet, status: 'True'}]}", "{}", "status.conditions: Invalid value"},
		{job, "{failed: 2, succeeded: 2}", "{failed: 1, succeeded: 1}",
			"status.failed: Invalid value\nstatus.succeeded: Invalid value"},
		{job, "{}", "{completedIndexes: '0'}", "status.completedIndexes: Invalid value"},
		{job, "{}", "{failedIndexes: '0'}", "status.failedIndexes: Invalid value"},
		{indexed, "{}", "{completedIndexes: '0,2-4', failedIndexes: '1'}", ""},
		{indexed, "{}", "{completedIndexes: '0,2-5'}", "status.completedIndexes: Invalid value"},
		{indexed, "{}", "{failedIndexes: '2,1'}", "status.failedIndexes: Invalid value"},
		{indexed, "{}", "{completedIndexes: '0,2-4', failedIndexes: '3'}", "status.failedIndexes: Invalid value"},
		{indexed, "{completedIndexes: '7'}", "{completedIndexes: '7', active: 1}", ""},
	} {
		t.Run(c.next, func(t *testing.T) {
			t.Parallel()
			r := kindtest.Of(t, batch.Resources(), "Job")
			cur := kindtest.Create(t, r, c.text)
			status := func(s string) *batchv1.Job {
				return kindtest.Update(t, r, cur, strings.TrimSuffix(c.text, "}")+", status: "+s+"}", "status").(*batchv1.Job)
			}
			old, next := status(c.old), status(c.next)
			kindtest.WantErrors(t, kindtest.Validate(r, next, old, "status"), lines(c.want)...)
		})
	}
}

func TestCronJobUpdates(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, batch.Resources(), "CronJob")
	long := kindtest.With(t, cronJob, "name: x", "name: "+strings.Repeat("x", 53))
	zoned := kindtest.With(t, cronJob, "'*/5", "'TZ=UTC */5")
	for _, c := range []struct{ cur, next, want string }{
		{cronJob, kindtest.With(t, cronJob, "image: d", "image: e"), ""},
		{cronJob, kindtest.With(t, cronJob, "*/5", "x"), "spec.schedule: Invalid value"},
		{long, long, ""}, // names of existing objects stay valid
		{zoned, zoned, ""},
		{zoned, kindtest.With(t, zoned, "schedule", "timeZone: UTC, schedule"), "spec.schedule: Invalid value"},
		{cronJob, zoned, "spec.schedule: Invalid value"},
	} {
		cur := kindtest.Create(t, r, c.cur)
		next := kindtest.Update(t, r, cur, c.next, "")
		kindtest.WantErrors(t, kindtest.Validate(r, next, cur, ""), lines(c.want)...)
	}
}
