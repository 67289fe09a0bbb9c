package batch_test

import (
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/yaml"

	"monopod/apiserver/registry/batch"
	"monopod/apiserver/registry/kind/kindtest"
)

func metav1Now() metav1.Time { return metav1.NewTime(kindtest.Now().Add(-time.Hour)) }

func decode(t *testing.T, obj any, text string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
}

func TestJobDefaults(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, batch.Resources(), "Job")
	j := kindtest.Create(t, r, job).(*batchv1.Job)
	s := &j.Spec
	if *s.Completions != 1 || *s.Parallelism != 1 || *s.BackoffLimit != 6 || *s.CompletionMode != "NonIndexed" ||
		*s.Suspend || *s.ManualSelector ||
		*s.PodReplacementPolicy != "TerminatingOrFailed" || j.Generation != 1 {
		t.Errorf("got %+v", s)
	}
	if i := kindtest.Create(t, r, indexed).(*batchv1.Job); *i.Spec.BackoffLimit != math.MaxInt32 {
		t.Errorf("got %+v", i.Spec)
	}
	queue := kindtest.Create(t, r, kindtest.With(t, job, "spec: {template", "spec: {parallelism: 3, template")).(*batchv1.Job)
	if queue.Spec.Completions != nil {
		t.Errorf("got %+v", queue.Spec)
	}
	policy := kindtest.Create(t, r, kindtest.With(t, job, "spec: {template",
		"spec: {podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: a}]}]}, template")).(*batchv1.Job)
	if *policy.Spec.PodReplacementPolicy != "Failed" ||
		policy.Spec.PodFailurePolicy.Rules[0].OnPodConditions[0].Status != "True" {
		t.Errorf("got %+v", policy.Spec)
	}
	c := kindtest.Create(t, kindtest.Of(t, batch.Resources(), "CronJob"), cronJob).(*batchv1.CronJob)
	if c.Spec.ConcurrencyPolicy != "Allow" || *c.Spec.Suspend || *c.Spec.SuccessfulJobsHistoryLimit != 3 ||
		*c.Spec.FailedJobsHistoryLimit != 1 || c.Spec.JobTemplate.Spec.BackoffLimit != nil {
		t.Errorf("got %+v", c.Spec)
	}
}

// A job without a manual selector gets a unique one.
func TestJobsSelectTheirPods(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, batch.Resources(), "Job")
	j := kindtest.Create(t, r, job).(*batchv1.Job)
	for key, want := range map[string]string{"job-name": "x", "batch.kubernetes.io/job-name": "x", "controller-uid": "u",
		"batch.kubernetes.io/controller-uid": "u"} {
		if j.Spec.Template.Labels[key] != want || j.Labels[key] != want {
			t.Errorf("label %s: template %q, job %q, want %q", key, j.Spec.Template.Labels[key], j.Labels[key], want)
		}
	}
	if got := metav1.FormatLabelSelector(j.Spec.Selector); got != "batch.kubernetes.io/controller-uid=u" {
		t.Errorf("got %s", got)
	}
	manual := kindtest.Create(t, r, kindtest.With(t, job, "spec: {template: {",
		"spec: {manualSelector: true, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, ")).(*batchv1.Job)
	if got := metav1.FormatLabelSelector(manual.Spec.Selector); got != "a=b" || len(manual.Spec.Template.Labels) != 1 {
		t.Errorf("got %s, %v", got, manual.Spec.Template.Labels)
	}
	kindtest.WantErrors(t, kindtest.Validate(r, manual, nil, ""))
}

func TestJobRows(t *testing.T) {
	t.Parallel()
	const start, end = "startTime: '2026-01-01T11:00:00Z'", "completionTime: '2026-01-01T11:00:30Z'"
	for _, c := range []struct{ meta, spec, status, want string }{
		{"name: x", "{}", "{}", "x|Running|0/1||<unknown>|c|d|<none>"},
		{"name: x", "{completions: 3}", "{succeeded: 1, " + start + "}", "x|Running|1/3|60m|<unknown>|c|d|<none>"},
		{"name: x", "{parallelism: 3}", "{" + start + ", " + end + ", conditions: [{type: Complete, status: 'True'}]}",
			"x|Complete|0/1 of 3|30s|<unknown>|c|d|<none>"},
		{"name: x", "{selector: {matchLabels: {a: b}}}",
			"{conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True'}]}",
			"x|Failed|0/1||<unknown>|c|d|a=b"},
		{"name: x, deletionTimestamp: '2026-01-01T11:00:00Z'", "{}", "{conditions: [{type: Suspended, status: 'True'}]}",
			"x|Terminating|0/1||<unknown>|c|d|<none>"},
		{"name: x", "{}", "{conditions: [{type: Suspended, status: 'True'}]}", "x|Suspended|0/1||<unknown>|c|d|<none>"},
		{"name: x", "{}", "{conditions: [{type: FailureTarget, status: 'True'}]}",
			"x|FailureTarget|0/1||<unknown>|c|d|<none>"},
		{"name: x", "{}", "{conditions: [{type: SuccessCriteriaMet, status: 'True'}]}",
			"x|SuccessCriteriaMet|0/1||<unknown>|c|d|<none>"},
		{"name: x", "{}", "{conditions: [{type: Suspended, status: 'False'}]}", "x|Running|0/1||<unknown>|c|d|<none>"},
	} {
		var j batchv1.Job
		spec := strings.TrimSuffix(c.spec, "}")
		if spec != "{" {
			spec += ", "
		}
		decode(t, &j, "{metadata: {"+c.meta+"}, spec: "+spec+
			"template: {spec: {containers: [{name: c, image: d}]}}}, status: "+c.status+"}")
		if got := kindtest.Row(t, kindtest.Of(t, batch.Resources(), "Job").Columns, &j); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestCronJobRows(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, batch.Resources(), "CronJob")
	for text, want := range map[string]string{
		"{}": "||<none>|<unset>|0|<none>|<unknown>|||<none>",
		"{metadata: {name: x}, spec: {schedule: '@daily', timeZone: UTC, suspend: true, " +
			"jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: d}]}}}}}, status: {active: [{name: a}], " +
			"lastScheduleTime: '2026-01-01T11:59:30Z'}}": "x|@daily|UTC|True|1|30s|<unknown>|c|d|<none>",
		"{metadata: {name: x}, spec: {suspend: false}}": "x||<none>|False|0|<none>|<unknown>|||<none>",
	} {
		var c batchv1.CronJob
		decode(t, &c, text)
		if got := kindtest.Row(t, r.Columns, &c); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if r.Columns[3].Type != "boolean" {
		t.Errorf("got %+v", r.Columns[3])
	}
}

func TestJobFields(t *testing.T) {
	t.Parallel()
	r := kindtest.Of(t, batch.Resources(), "Job")
	if got := r.FieldsOf(&batchv1.Job{Status: batchv1.JobStatus{Succeeded: 4}})["status.successful"]; got != "4" {
		t.Errorf("got %q", got)
	}
	if !r.Orphans || r.OrphanWarning == "" {
		t.Error("a deletion without a propagation policy does not orphan the pods, or does not warn")
	}
}

func TestBatchWarnings(t *testing.T) {
	t.Parallel()
	many := kindtest.With(t, indexed, "completions: 5, parallelism: 2",
		"completions: 100001, parallelism: 10001, maxFailedIndexes: 1")
	for _, c := range []struct{ kind, text, want string }{
		{"Job", job, ""},
		{"Job", kindtest.With(t, job, "name: x", "name: x.y"), "metadata.name: this is used in Pod names"},
		{"Job", many, "spec: In Indexed Jobs"},
		{"Job", kindtest.With(t, job, "image: d", "image: d, resources: {limits: {memory: 100m}}"),
			"spec.template.spec.containers[0].resources.limits[memory]: fractional"},
		{"CronJob", cronJob, ""},
		{"CronJob", kindtest.With(t, cronJob, "name: x", "name: x.y"), "metadata.name: this is used in Pod names"},
		{"CronJob", kindtest.With(t, cronJob, "image: d", "image: d, ports: [{containerPort: 80}, {containerPort: 80}]"),
			"spec.jobTemplate.spec.template.spec.containers[0].ports[1]: duplicate port definition"},
		{"CronJob", kindtest.With(t, cronJob, "'*/5", "'TZ=UTC */5"), "cannot use TZ or CRON_TZ in spec.schedule"},
	} {
		r := kindtest.Of(t, batch.Resources(), c.kind)
		got := strings.Join(r.Warnings(kindtest.Create(t, r, c.text), nil), "\n")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%s: warned %q, want %q", c.kind, got, c.want)
		}
	}
}

func FuzzSchedules(f *testing.F) {
	for _, s := range []string{"* * * * *", "@every 1h", "TZ=UTC 0 0 * * *", "CRON_TZ=", "@", "TZ=", "*/0 * * * *",
		"1-0 * * * *"} {
		f.Add(s, "Europe/Berlin")
	}
	f.Fuzz(func(_ *testing.T, schedule, zone string) {
		for _, r := range batch.Resources() {
			if r.Kind == "CronJob" {
				r.Validate(&batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: schedule, TimeZone: &zone}}, nil, "")
			}
		}
	})
}
