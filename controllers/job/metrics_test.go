package job

import (
	"testing"
	"time"

	"monopod/controllers/internal/apitest"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// The counters have upstream's names and labels, and count every pod, index and Job once.
func TestMetrics(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.create(sized(2, 2), withIndexes, func(job *batchv1.Job) {
			job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action: batchv1.PodFailurePolicyActionCount,
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
					Values: []int32{3}},
			}}}
		})
		c.end(0, corev1.PodFailed,
			func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{exitedWith(3)} })
		apitest.Settle(20 * time.Second)
		c.end(0, corev1.PodSucceeded)
		c.end(1, corev1.PodSucceeded)
		want := `job_finished_indexes_total global succeeded=2
job_pods_creation_total new succeeded=2
job_pods_creation_total recreate_failed succeeded=1
job_pods_finished_total Indexed failed=1
job_pods_finished_total Indexed succeeded=2
jobs_finished_total Indexed CompletionsReached succeeded=1
pod_failures_handled_by_failure_policy_total Count=1
terminated_pods_tracking_finalizer_total add=3
terminated_pods_tracking_finalizer_total delete=3`
		if got := c.Counters("job_controller_", "job_sync"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
