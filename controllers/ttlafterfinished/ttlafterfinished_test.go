package ttlafterfinished

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func job(name string, ttl *int32) *batchv1.Job {
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: batchv1.JobSpec{TTLSecondsAfterFinished: ttl, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "image"}},
		}}},
	}
}

func finish(api *apitest.API, name string) {
	apitest.Change(api, job(name, nil), "status", func(j *batchv1.Job) {
		now := metav1.Now()
		j.Status.StartTime = &now
		for _, t := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
			j.Status.Conditions = append(j.Status.Conditions,
				batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
	})
}

func TestTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(apitest.Must(New(api.Deps(), Config{})))
		deleted := func(name string) bool {
			j, ok := apitest.Get[*batchv1.Job](api, "default", name)
			return !ok || j.DeletionTimestamp != nil
		}
		api.Create(job("minute", new(int32(60))), job("kept", nil), job("runs", new(int32(0))), job("later", new(int32(60))),
			job("never", new(int32(60))))
		for _, name := range []string{"minute", "kept", "later", "never"} {
			finish(api, name)
		}
		apitest.Settle(30 * time.Second)
		apitest.Change(api, job("later", nil), "", func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(120)) })
		apitest.Change(api, job("never", nil), "", func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = nil })
		for _, step := range []struct {
			wait time.Duration
			want map[string]bool
		}{
			{29 * time.Second, map[string]bool{"minute": false, "kept": false, "runs": false, "later": false, "never": false}},
			{2 * time.Second, map[string]bool{"minute": true, "kept": false, "runs": false, "later": false, "never": false}},
			{time.Hour, map[string]bool{"minute": true, "kept": false, "runs": false, "later": true, "never": false}},
		} {
			apitest.Settle(step.wait)
			for name, want := range step.want {
				if got := deleted(name); got != want {
					t.Errorf("%s: deleted is %v, want %v", name, got, want)
				}
			}
		}
		if j, ok := apitest.Get[*batchv1.Job](api, "default", "minute"); !ok || len(j.Finalizers) != 1 ||
			j.Finalizers[0] != metav1.FinalizerDeleteDependents {
			t.Error("the Job is not deleted in the foreground")
		}
	})
}

// If the TTL ends while the machine is suspended, the Job is deleted when the machine resumes.
func TestMachineSlept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		deps := api.Deps()
		clock := api.Settable(&deps)
		api.Run(apitest.Must(New(deps, Config{})))
		api.Create(job("day", new(int32(24*60*60))))
		finish(api, "day")
		for _, step := range []struct {
			slept time.Duration
			want  bool
		}{{23 * time.Hour, true}, {time.Hour, false}} {
			clock.Set(step.slept)
			if j, ok := apitest.Get[*batchv1.Job](api, "default", "day"); (ok && j.DeletionTimestamp == nil) != step.want {
				t.Errorf("after another %v of suspend: %v", step.slept, j)
			}
		}
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	end := metav1.Now()
	since := func(typ batchv1.JobConditionType, status corev1.ConditionStatus, at metav1.Time) batchv1.JobCondition {
		return batchv1.JobCondition{Type: typ, Status: status, LastTransitionTime: at}
	}
	for name, c := range map[string]struct {
		ttl        *int32
		conditions []batchv1.JobCondition
		deleting   bool
		want       time.Duration // after the end; -1: never
	}{
		"no TTL": {nil, []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue, end)}, false, -1},
		"at once": {new(int32(0)), []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue, end)},
			false, 0},
		"completed": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue, end)},
			false, 10 * time.Second},
		"failed": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobFailed, corev1.ConditionTrue, end)},
			false, 10 * time.Second},
		"runs": {new(int32(10)), nil, false, -1},
		"suspended": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobSuspended, corev1.ConditionTrue, end)},
			false, -1},
		"FailureTarget": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobFailureTarget, corev1.ConditionTrue,
			end)}, false, -1},
		"SuccessCriteriaMet": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobSuccessCriteriaMet,
			corev1.ConditionTrue, end)}, false, -1},
		"Complete is False": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionFalse, end)},
			false, -1},
		"no transition time": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue,
			metav1.Time{})}, false, -1},
		"terminating": {new(int32(10)), []batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue, end)},
			true, -1},
		"the longest TTL": {new(int32(math.MaxInt32)),
			[]batchv1.JobCondition{since(batchv1.JobComplete, corev1.ConditionTrue, end)}, false, math.MaxInt32 * time.Second},
	} {
		j := job("j", c.ttl)
		j.Status.Conditions = c.conditions
		if c.deleting {
			j.DeletionTimestamp = &end
		}
		at, ok := expiry(j)
		if ok != (c.want >= 0) || ok && at.Sub(end.Time) != c.want {
			t.Errorf("%s: %v after the end, %v; want %v", name, at.Sub(end.Time), ok, c.want)
		}
	}
}

// If the clock is set back, a Job is deleted a TTL after its completion time, which is then in the future.
func TestClockThatWentBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		deps := api.Deps()
		clock := api.Settable(&deps)
		api.Run(apitest.Must(New(deps, Config{})))
		api.Create(job("j", new(int32(60))))
		finish(api, "j")
		clock.Set(-time.Hour)
		for _, step := range []struct {
			wait  time.Duration
			stays bool
		}{{time.Hour, true}, {time.Minute, false}} {
			apitest.Settle(step.wait)
			if j, ok := apitest.Get[*batchv1.Job](api, "default", "j"); (ok && j.DeletionTimestamp == nil) != step.stays {
				t.Errorf("after another %v: %v", step.wait, j)
			}
		}
	})
}
