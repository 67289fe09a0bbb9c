package kind_test

import (
	"reflect"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"monopod/apiserver/registry/kind"
)

func precise() metav1.Time {
	return metav1.NewTime(time.Date(2026, 11, 26, 1, 2, 3, 123456789, time.UTC))
}

func samples() []kind.Object {
	at := precise()
	return []kind.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at, DeletionTimestamp: &at,
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}},
		&corev1.Pod{Status: corev1.PodStatus{StartTime: &at, Conditions: []corev1.PodCondition{{LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}}}},
		&batchv1.Job{Status: batchv1.JobStatus{StartTime: &at}},
		&policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{"a": at}}},
		&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at.Time}}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
			"spec": map[string]any{"at": "2026-11-26T01:02:03.5Z"}}},
	}
}

func TestCutTimes(t *testing.T) {
	t.Parallel()
	for _, obj := range samples() {
		kind.CutTimes(obj)
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		read := reflect.New(reflect.TypeOf(obj).Elem()).Interface()
		if err := json.Unmarshal(data, read); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(obj, read) {
			t.Errorf("%T: %+v, read back: %+v", obj, obj, read)
		}
	}
}
